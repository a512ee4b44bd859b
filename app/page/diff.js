/** Differences shown: a unified diff as the server sends it, or two texts, with their lines coloured and counted. */
import { filesOf, rowsOf } from './difference.js';
import { h } from './dom.js';
import { count, localPath, revealed } from './text.js';

const MOST_ROWS = 400;

/** One element for each file of a unified diff. */
export function diffView(patch) {
  return h(
    'div',
    { class: 'diff' },
    filesOf(patch).map(({ name, rows }) => fileView(name, rows)),
  );
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
  return h(
    'section',
    { class: 'file', 'aria-label': `Changes of ${name}` },
    h('header', {}, h('bdi', { class: 'path' }, revealed(localPath(name))), counted),
    h('div', { class: 'scroll', tabindex: '0' }, table),
    more,
  );
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
