/**
 * Markdown as models write it, made of elements: headings, paragraphs, lists, quotes, code, tables, emphasis, links.
 *
 * Text is cut into blocks. Of a text that grows only its last block is made again, and in one frame not more than there is time
 * for, so an answer of a megabyte streams as smoothly as a short one. A block ends at the latest after LONGEST characters, which
 * bounds that work; code is only added to.
 */
import { h } from './dom.js';
import { inline } from './inline.js';

const LONGEST = 6000;
const LONGEST_LINE = 20_000;
const DEEPEST = 4;
const FRAME_MS = 12;
const BLOCKS_A_SECTION = 40;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])(?:[ \t]+|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Shows a text in `element`; `update` may be called with a longer text as often as it grows. */
export class Markdown {
  #text = '';
  #lastStart = 0;
  #last = null;
  #waiting = false;

  constructor(element) {
    this.element = element;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#clear();
    this.#text = text;
    if (!this.#waiting) this.#render();
  }

  #clear() {
    this.element.replaceChildren();
    this.#last = null;
    this.#lastStart = 0;
  }

  /** Goes on where it was; what stands before the last block has been shown and will not change. */
  #render() {
    const end = performance.now() + FRAME_MS;
    this.#waiting = false;
    for (const block of blocks(this.#text, this.#lastStart)) {
      if (block.start === this.#lastStart && this.#last) this.#replaceLast(block);
      else this.#append(block);
      this.#lastStart = block.start;
      if (performance.now() > end) return this.#goOn();
    }
  }

  #goOn() {
    this.#waiting = true;
    const goOn = () => this.#render();
    if (document.hidden) setTimeout(goOn);
    else requestAnimationFrame(goOn);
  }

  #replaceLast(block) {
    if (block.type === 'code' && this.#last.language === block.language) {
      this.#last.code.update(block.text);
      return;
    }
    const old = this.#last.element;
    this.#last = shown(block, 0);
    old.replaceWith(this.#last.element);
  }

  /** Sections let the browser leave out what is not in sight. */
  #append(block) {
    this.#last = shown(block, 0);
    const section = this.element.lastElementChild;
    if (section && section.children.length < BLOCKS_A_SECTION) section.append(this.#last.element);
    else this.element.append(h('div', { class: 'section' }, this.#last.element));
  }
}

/** Long plain text in pieces, so that adding to it neither copies nor lays out the whole again. */
export class LongText {
  #text = '';

  constructor(element) {
    this.element = element;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) {
      this.element.replaceChildren();
      this.#text = '';
    }
    let added = text.slice(this.#text.length);
    this.#text = text;
    while (added) added = this.#add(added);
  }

  /** Fills the last piece up to the next line's end; returns what is left over. */
  #add(added) {
    let piece = this.element.lastChild;
    if (!piece || piece.firstChild.length >= LONGEST) {
      piece = h('span', { class: 'piece' }, document.createTextNode(''));
      this.element.append(piece);
    }
    const room = LONGEST - piece.firstChild.length;
    const lineEnd = added.indexOf('\n', room);
    const cut = lineEnd < 0 || lineEnd > room + LONGEST_LINE ? Math.min(added.length, room + LONGEST_LINE) : lineEnd + 1;
    piece.firstChild.appendData(added.slice(0, cut));
    return added.slice(cut);
  }
}

// Blocks

/** The blocks of `text` from `start` on: `{type, start, …}`. */
function* blocks(text, start) {
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
  if (RULE.test(line)) return lines.next(), { type: 'rule' };
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
  return lines.take((line) => QUOTE.test(line)).map((line) => line.replace(QUOTE, '')).join('\n');
}

function listAt(lines) {
  const [, , , number] = ITEM.exec(lines.peek());
  const ordered = number !== undefined;
  const items = [];
  let indent = 0;
  for (const line of lines.take((line) => continuesList(line, ordered, lines))) {
    const item = ITEM.exec(line);
    if (item && (items.length === 0 || item[1].length < indent)) {
      indent = Math.max(item[0].length, 2);
      items.push([line.slice(item[0].length)]);
    } else {
      items.at(-1).push(line.slice(Math.min(indent, line.search(/\S|$/))));
    }
  }
  return { type: 'list', ordered, first: Number(number ?? 1), items: items.map((item) => item.join('\n').trimEnd()) };
}

/** A blank line ends a list unless it goes on after it. */
function continuesList(line, ordered, lines) {
  const item = ITEM.exec(line);
  if (item) return (item[3] !== undefined) === ordered && !RULE.test(line);
  if (!line.trim()) return /^ {2,}\S/.test(lines.peek(1)) || (ITEM.test(lines.peek(1)) && continuesList(lines.peek(1), ordered, lines));
  return /^ {2,}/.test(line) || !startsBlock(line);
}

function tableAt(lines) {
  const head = cells(lines.next());
  const aligned = cells(lines.next()).map((cell) => `${cell.startsWith(':') ? 'l' : ''}${cell.endsWith(':') ? 'r' : ''}`);
  const rows = lines.take((line) => line.includes('|')).map(cells);
  return { type: 'table', head, aligned, rows };
}

function cells(row) {
  return row.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
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

// Elements

function shown(block, depth) {
  if (block.type !== 'code') return { element: ELEMENTS[block.type](block, depth) };
  const code = new LongText(h('code'));
  code.update(block.text);
  const label = block.language && h('span', { class: 'language' }, block.language.slice(0, 40));
  const pre = h('pre', { tabindex: '0', 'aria-label': `Code ${block.language}` }, code.element);
  return { language: block.language, code, element: h('div', { class: 'code' }, label, pre) };
}

const ELEMENTS = {
  heading: (block) => h(`h${Math.min(6, block.level + 2)}`, { dir: 'auto' }, inline(block.text)),
  paragraph: (block) => h('p', { dir: 'auto' }, inline(block.text)),
  rule: () => h('hr'),
  quote: (block, depth) => h('blockquote', {}, nested(block.text, depth)),
  list: (block, depth) =>
    h(
      block.ordered ? 'ol' : 'ul',
      { start: block.ordered && block.first !== 1 && block.first },
      block.items.map((item) => h('li', { dir: 'auto' }, itemOf(item, depth))),
    ),
  table: (block) =>
    h('div', { class: 'table', tabindex: '0' }, h('table', {}, h('thead', {}, rowOf('th', block.head, block.aligned)), h('tbody', {}, block.rows.map((row) => rowOf('td', row, block.aligned))))),
};

const ALIGNED = { r: 'right', lr: 'center' };

function rowOf(tag, row, aligned) {
  return h('tr', {}, row.map((cell, column) => h(tag, { class: ALIGNED[aligned[column]], dir: 'auto' }, inline(cell))));
}

/** An item of one line is no paragraph of its own. */
function itemOf(text, depth) {
  const task = /^\[([ xX])\] /.exec(text);
  if (!task) return nested(text, depth);
  const box = h('input', { type: 'checkbox', disabled: true, checked: task[1] !== ' ', 'aria-label': task[1] === ' ' ? 'to do' : 'done' });
  return [box, ' ', nested(text.slice(4), depth)].flat();
}

function nested(text, depth) {
  if (depth >= DEEPEST) return [text];
  const elements = [...blocks(text, 0)].map((block) => shown(block, depth + 1).element);
  const [first] = elements;
  if (first?.tagName !== 'P' || elements.slice(1).some((element) => element.tagName === 'P')) return elements;
  return [...first.childNodes, ...elements.slice(1)];
}
