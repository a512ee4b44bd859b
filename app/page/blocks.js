/**
 * Markdown cut into blocks: headings, paragraphs, lists, quotes, code, tables. A block ends at the latest after LONGEST characters,
 * so that what is made again while a text grows stays small; only code may be longer.
 */

const LONGEST = 6000;
const LONGEST_LINE = 20_000;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])(?:[ \t]+|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** The blocks of `text` from `start` on: `{type, start, …}`. */
export function* blocks(text, start) {
  const lines = new Lines(text, start);
  while (!lines.done) {
    if (!lines.peek().trim()) lines.next();
    else yield { start: lines.at, ...blockAt(lines) };
  }
}

function blockAt(lines) {
  const line = lines.peek();
  const fence = FENCE.exec(line);
  if (fence) return codeAt(lines, fence);
  const heading = HEADING.exec(line);
  if (heading) return { type: 'heading', level: heading[1].length, text: (lines.next(), heading[2]) };
  if (RULE.test(line)) return (lines.next(), { type: 'rule' });
  if (QUOTE.test(line)) return { type: 'quote', text: quotedAt(lines) };
  if (ITEM.test(line)) return listAt(lines);
  if (line.includes('|') && TABLE_RULE.test(lines.peek(1))) return tableAt(lines);
  return { type: 'paragraph', text: paragraphAt(lines) };
}

function codeAt(lines, [, mark, info]) {
  lines.next();
  const start = lines.at;
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = start;
  while (!lines.done && !closing.test(lines.peek())) {
    lines.next();
    end = lines.at;
  }
  lines.next();
  return { type: 'code', language: info.trim().split(/\s/)[0], text: lines.text.slice(start, end) };
}

function quotedAt(lines) {
  return lines
    .take((line) => QUOTE.test(line))
    .map((line) => line.replace(QUOTE, ''))
    .join('\n');
}

function listAt(lines) {
  const [, before, , number] = ITEM.exec(lines.peek());
  const ordered = number !== undefined;
  const within = before.length + 2;
  const items = [];
  let indent = 0;
  for (const line of lines.take((line) => continuesList(line, ordered, within, lines))) {
    const item = ITEM.exec(line);
    if (item && item[1].length < within) {
      indent = Math.max(item[0].length, 2);
      items.push([line.slice(item[0].length)]);
    } else {
      items.at(-1).push(line.slice(Math.min(indent, line.search(/\S|$/))));
    }
  }
  return { type: 'list', ordered, first: Number(number ?? 1), items: items.map((item) => item.join('\n').trimEnd()) };
}

/** What stands `within` characters from the margin is part of an item. A blank line ends a list unless it goes on after it. */
function continuesList(line, ordered, within, lines) {
  if (line.search(/\S/) >= within) return true;
  const item = ITEM.exec(line);
  if (item) return (item[3] !== undefined) === ordered && !RULE.test(line);
  if (!line.trim())
    return /^ {2,}\S/.test(lines.peek(1)) || (ITEM.test(lines.peek(1)) && continuesList(lines.peek(1), ordered, within, lines));
  return /^ {2,}/.test(line) || !startsBlock(line);
}

function tableAt(lines) {
  const head = cells(lines.next());
  const aligned = cells(lines.next()).map((cell) => `${cell.startsWith(':') ? 'l' : ''}${cell.endsWith(':') ? 'r' : ''}`);
  const rows = lines.take((line) => line.includes('|')).map(cells);
  return { type: 'table', head, aligned, rows };
}

function cells(row) {
  return row
    .trim()
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function paragraphAt(lines) {
  const first = lines.next();
  return [first, ...lines.take((line) => line.trim() && !startsBlock(line), first.length)].join('\n');
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);
}

/** A text line by line; a line that is longer than any that a person writes counts as several. */
class Lines {
  constructor(text, at) {
    this.text = text;
    this.at = at;
  }

  get done() {
    return this.at >= this.text.length;
  }

  peek(ahead = 0) {
    let start = this.at;
    for (; ahead > 0; ahead--) start = this.#endAt(start).next;
    return this.text.slice(start, this.#endAt(start).end);
  }

  next() {
    const { end, next } = this.#endAt(this.at);
    const line = this.text.slice(this.at, end);
    this.at = next;
    return line;
  }

  /** Lines as long as they are `wanted`, at most LONGEST characters of them. */
  take(wanted, length = 0) {
    const taken = [];
    while (!this.done && length < LONGEST && wanted(this.peek())) {
      taken.push(this.next());
      length += taken.at(-1).length + 1;
    }
    return taken;
  }

  #endAt(start) {
    const found = this.text.indexOf('\n', start);
    const end = found < 0 ? this.text.length : found;
    if (end - start <= LONGEST_LINE) return { end, next: Math.min(end + 1, this.text.length) };
    return { end: start + LONGEST_LINE, next: start + LONGEST_LINE };
  }
}
