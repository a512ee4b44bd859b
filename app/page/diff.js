/** Differences: a unified diff as the server sends it, or two texts, shown with its lines coloured and counted. */
import { h } from './dom.js';
import { count, revealed } from './text.js';

const MOST_ROWS = 400;
const MOST_EDITS = 1500;
const CONTEXT = 3;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/;

/** One element for each file of a unified diff. */
export function diffView(patch) {
  return h('div', { class: 'diff' }, filesOf(patch).map(({ name, rows }) => fileView(name, rows)));
}

/** A FileDiff: `{file, before, after, additions, deletions}`. */
export function fileDiffView({ file, before, after }) {
  const rows = rowsOf(before, after);
  return fileView(file, rows.length ? rows : [{ kind: 'note', text: 'No text to compare.' }]);
}

function fileView(name, rows) {
  const counted = h('span', { class: 'counted' }, changeCount(rows, 'added'), ' ', changeCount(rows, 'removed'));
  const table = h('div', { class: 'rows', role: 'presentation' }, rows.slice(0, MOST_ROWS).map(rowView));
  const more = rows.length > MOST_ROWS && moreButton(table, rows.slice(MOST_ROWS));
  return h('section', { class: 'file', 'aria-label': `Changes of ${name}` }, h('header', {}, h('bdi', { class: 'path' }, revealed(name)), counted), h('div', { class: 'scroll', tabindex: '0' }, table), more);
}

function changeCount(rows, kind) {
  const lines = rows.filter((row) => row.kind === kind).length;
  return h('span', { class: kind, title: `${count(lines, 'line')} ${kind}` }, `${kind === 'added' ? '+' : '−'}${lines}`);
}

function moreButton(table, rest) {
  const button = h('button', { type: 'button', class: 'quiet', onclick: showRest }, `Show ${count(rest.length, 'more line')}`);
  function showRest() {
    table.append(...rest.map(rowView));
    button.remove();
  }
  return button;
}

const SIGNS = { added: '+', removed: '−', same: ' ', hunk: '', note: '' };
const SPOKEN = { added: 'added: ', removed: 'removed: ' };

function rowView({ kind, text, number }) {
  return h(
    'div',
    { class: `row ${kind}` },
    h('span', { class: 'number', 'aria-hidden': 'true' }, number === undefined ? '' : String(number)),
    h('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[kind]),
    SPOKEN[kind] && h('span', { class: 'unseen' }, SPOKEN[kind]),
    h('span', { class: 'line' }, revealed(text)),
  );
}

/** `{name, rows}` for each file; a row is `{kind: added | removed | same | hunk | note, text, number}`. */
export function filesOf(patch) {
  const files = [];
  const at = { before: 0, after: 0, inHunk: false };
  for (const line of patch.replace(/\n$/, '').split('\n')) readLine(line, files, at);
  return files;
}

function readLine(line, files, at) {
  const hunk = HUNK.exec(line);
  if (hunk) {
    [at.before, at.after, at.inHunk] = [Number(hunk[1]), Number(hunk[2]), true];
    files.at(-1)?.rows.push({ kind: 'hunk', text: hunk[3].trim() });
  } else if (/^(diff --git |Index: )/.test(line)) {
    at.inHunk = false;
    files.push({ name: line.replace(/^Index: /, '').replace(/^diff --git .* "?b\/(.*?)"?$/, '$1'), rows: [] });
  } else if (!at.inHunk) {
    readHeader(line, files);
  } else if (files.length) {
    files.at(-1).rows.push(changedLine(line, at));
  }
}

function readHeader(line, files) {
  const [, sign, name] = /^(---|\+\+\+) (?:[ab]\/)?(.*?)\t?$/.exec(line) ?? [];
  if (sign === '---' && (files.length === 0 || files.at(-1).rows.length)) files.push({ name, rows: [] });
  else if (sign === '+++' && name !== '/dev/null' && files.at(-1).name === '/dev/null') files.at(-1).name = name;
  else if (/^(new file|deleted file|rename |Binary files)/.test(line)) files.at(-1)?.rows.push({ kind: 'note', text: line });
}

function changedLine(line, at) {
  const text = line.slice(1);
  if (line.startsWith('+')) return { kind: 'added', text, number: at.after++ };
  if (line.startsWith('-')) return { kind: 'removed', text, number: at.before++ };
  if (line.startsWith('\\')) return { kind: 'note', text: line.slice(2) };
  at.before++;
  return { kind: 'same', text, number: at.after++ };
}

// Two texts

/** The changed lines of two texts, with CONTEXT unchanged ones around them. */
export function rowsOf(before, after) {
  const [old, fresh] = [linesOf(before), linesOf(after)];
  const { head, tail } = commonEnds(old, fresh);
  const middle = edits(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail));
  const same = (text) => ({ kind: 'same', text });
  return shortened(numbered([...old.slice(0, head).map(same), ...middle, ...old.slice(old.length - tail).map(same)]));
}

function linesOf(text) {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}

function commonEnds(old, fresh) {
  const most = Math.min(old.length, fresh.length);
  let head = 0;
  while (head < most && old[head] === fresh[head]) head++;
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail++;
  return { head, tail };
}

/** Myers' shortest edit; texts that have too little in common count as wholly replaced. */
function edits(old, fresh) {
  const trace = shortestTrace(old, fresh);
  if (!trace) return [...old.map((text) => ({ kind: 'removed', text })), ...fresh.map((text) => ({ kind: 'added', text }))];
  const rows = [];
  let [x, y] = [old.length, fresh.length];
  for (let d = trace.length - 1; d >= 0; d--) {
    const reached = trace[d];
    const k = x - y;
    const down = k === -d || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
    const fromX = d === 0 ? 0 : reached.get(down ? k + 1 : k - 1);
    const fromY = d === 0 ? 0 : fromX - (down ? k + 1 : k - 1);
    while (x > fromX && y > fromY && old[x - 1] === fresh[y - 1]) rows.push({ kind: 'same', text: old[--x] }), y--;
    if (d > 0) rows.push(down ? { kind: 'added', text: fresh[--y] } : { kind: 'removed', text: old[--x] });
  }
  return rows.reverse();
}

/** For each number of edits the furthest x on each diagonal k = x - y, as it was before that many; null beyond MOST_EDITS. */
function shortestTrace(old, fresh) {
  const furthest = new Map([[1, 0]]);
  const trace = [];
  for (let d = 0; d <= MOST_EDITS; d++) {
    trace.push(new Map(furthest));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && furthest.get(k - 1) < furthest.get(k + 1));
      let x = down ? furthest.get(k + 1) : furthest.get(k - 1) + 1;
      while (x < old.length && x - k < fresh.length && old[x] === fresh[x - k]) x++;
      furthest.set(k, x);
      if (x >= old.length && x - k >= fresh.length) return trace;
    }
  }
  return null;
}

function numbered(rows) {
  const at = { before: 1, after: 1 };
  return rows.map((row) => {
    const number = row.kind === 'removed' ? at.before++ : at.after++;
    if (row.kind === 'same') at.before++;
    return { ...row, number };
  });
}

function shortened(rows) {
  const near = new Set();
  rows.forEach((row, place) => {
    if (row.kind !== 'same') for (let by = -CONTEXT; by <= CONTEXT; by++) near.add(place + by);
  });
  const shown = [];
  rows.forEach((row, place) => {
    if (!near.has(place)) return;
    if (place > 0 && !near.has(place - 1)) shown.push({ kind: 'hunk', text: '' });
    shown.push(row);
  });
  return shown;
}
