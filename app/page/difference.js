/** Differences as rows, of a unified diff or of two texts: `{kind: added | removed | same | hunk | note, text, number}`. */
import './vendor/diff.js';

const { parsePatch, structuredPatch } = globalThis.Diff;
const MAX_EDITS = 1500;
const KINDS = { '+': 'added', '-': 'removed', '\\': 'note', ' ': 'same' };

/** `{name, rows}` for each file. A text that is no unified diff is shown as it is. */
export function filesOf(patch) {
  try {
    return parsePatch(patch).map((file) => ({ name: nameOf(file), rows: [...notesOf(file), ...file.hunks.flatMap(hunkRows)] }));
  } catch {
    return [{ name: '', rows: patch.split('\n').map((text) => ({ kind: 'note', text })) }];
  }
}

function nameOf({ oldFileName, newFileName, index }) {
  const name = newFileName && newFileName !== '/dev/null' ? newFileName : oldFileName;
  return (name ?? index ?? '').replace(/^[ab]\//, '');
}

function notesOf({ isCreate, isDelete, isRename, isBinary, oldFileName }) {
  const notes = [
    isCreate && 'new file',
    isDelete && 'deleted file',
    isRename && `renamed from ${oldFileName.replace(/^a\//, '')}`,
    isBinary && 'binary file',
  ];
  return notes.filter(Boolean).map((text) => ({ kind: 'note', text }));
}

/** The changed lines of two texts with three unchanged ones around them; texts that differ too much count as wholly replaced. */
export function rowsOf(before, after) {
  const patch = structuredPatch('', '', before, after, '', '', { context: 3, maxEditLength: MAX_EDITS });
  return patch ? patch.hunks.flatMap(hunkRows).slice(1) : [...wholeText(before, 'removed'), ...wholeText(after, 'added')];
}

function wholeText(text, kind) {
  if (text === '') return [];
  return text.replace(/\n$/, '').split('\n').map((line, index) => ({ kind, text: line, number: index + 1 }));
}

/** A line's number is its place in the newer text, a removed one's in the older. */
function hunkRows({ oldStart, newStart, lines }) {
  const next = { removed: oldStart, added: newStart };
  const rows = lines.map((line) => {
    const kind = KINDS[line[0]];
    if (kind === 'note') return { kind, text: line.slice(2) };
    const number = kind === 'removed' ? next.removed++ : next.added++;
    if (kind === 'same') next.removed++;
    return { kind, text: line.slice(1), number };
  });
  return [{ kind: 'hunk', text: '' }, ...rows];
}
