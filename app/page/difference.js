/** Differences as rows, of a unified diff or of two texts: `{kind: added | removed | same | hunk | note, text, number}`. */

const MOST_EDITS = 1500;
const CONTEXT = 3;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/;

/** `{name, rows}` for each file. */
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
  if (sign === '---' && !isBegun(files.at(-1))) files.push({ name, rows: [] });
  else if (sign === '+++' && name !== '/dev/null' && files.at(-1).name === '/dev/null') files.at(-1).name = name;
  else if (/^(new file|deleted file|rename |Binary files)/.test(line)) files.at(-1)?.rows.push(noteOf(line));
}

/** A file of which no line was read yet: its `---` belongs to it. */
function isBegun(file) {
  return file?.rows.every(({ kind }) => kind === 'note') ?? false;
}

function noteOf(line) {
  return { kind: 'note', text: line.replace(/ mode \d+$/, '') };
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
    const from = d === 0 ? { x: 0, y: 0 } : originOf(trace[d], d, x - y);
    for (; x > from.x && y > from.y; x--, y--) rows.push({ kind: 'same', text: old[x - 1] });
    if (d > 0) rows.push(y > from.y ? { kind: 'added', text: fresh[--y] } : { kind: 'removed', text: old[--x] });
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
      const x = alongSame(old, fresh, isAddition(furthest, d, k) ? furthest.get(k + 1) : furthest.get(k - 1) + 1, k);
      furthest.set(k, x);
      if (x >= old.length && x - k >= fresh.length) return trace;
    }
  }
  return null;
}

function isAddition(furthest, d, k) {
  return k === -d || (k !== d && furthest.get(k - 1) < furthest.get(k + 1));
}

function originOf(furthest, d, k) {
  const diagonal = isAddition(furthest, d, k) ? k + 1 : k - 1;
  const x = furthest.get(diagonal);
  return { x, y: x - diagonal };
}

function alongSame(old, fresh, x, k) {
  while (x < old.length && x - k < fresh.length && old[x] === fresh[x - k]) x++;
  return x;
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
