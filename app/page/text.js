/** Small words and numbers, as people read them. */

const HIDDEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\uffa0\ufff0-\ufff8\u{e0000}-\u{e0fff}]/gu;

/** For commands, paths and diffs: a character that hides or reorders others is shown by its number, so that what is allowed is
 * what is read. `app/cli/support.py` does the same. */
export function revealed(text) {
  return String(text).replace(HIDDEN, (char) => `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** A model, or a document that was imported, may have anything where a text belongs. */
export function asText(value) {
  return typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value, null, 1);
}

let project = '';

/** The directory that the page is about: paths below it are shown as they are seen from there. */
export function workIn(directory) {
  project = directory.replace(/\/?$/, '/');
}

export function localPath(path) {
  return path.startsWith(project) ? path.slice(project.length) : path;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}

export function shortNumber(number) {
  if (number < 1000) return String(number);
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 10_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

export function dollars(amount) {
  return amount > 0 && amount < 0.01 ? '<$0.01' : `$${amount.toFixed(2)}`;
}

export function duration(milliseconds) {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const STEPS = [
  [60, 'second', 1],
  [3600, 'minute', 60],
  [86_400, 'hour', 3600],
  [Infinity, 'day', 86_400],
];
const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });

/** "3 min. ago"; `then` in milliseconds. */
export function ago(then, now = Date.now()) {
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 45) return 'now';
  const [, unit, size] = STEPS.find(([limit]) => seconds < limit);
  return RELATIVE.format(-Math.round(seconds / size), unit);
}

/** The server dates the titles of new sessions until a model has found one. */
export function titleOf(session) {
  return session.title.replace(/^(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z$/, '$1 session') || 'Untitled';
}

/** What titles are compared by, whatever their case and accents. */
export function plain(text) {
  return text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
}

/** What went wrong, in a stored error or one that was thrown. */
export function errorText(error) {
  if (error?.name === 'MessageAbortedError') return 'Stopped.';
  if (error?.name === 'MessageOutputLengthError') return 'The answer reached its maximum length without any text.';
  return error?.data?.message || error?.message || String(error?.name ?? error);
}
