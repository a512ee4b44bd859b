/**
 * Markdown as models write it, shown as it streams.
 *
 * markdown-it parses, DOMPurify lets through only the elements named here, highlight.js colours code. Of a text that grows only the
 * last block is rendered again, and a frame renders no longer than FRAME_MS, so that an answer of a megabyte streams smoothly.
 */
import { Code } from './code.js';
import { h } from './dom.js';
import { sanitized } from './sanitized.js';
import markdownit from './vendor/markdown-it.mjs';

const FRAME_MS = 12;
const BLOCKS_PER_SECTION = 40;
const PARSED_AT_ONCE = 5_000;

const parser = markdownit({ breaks: true, linkify: true, maxNesting: 20 }).disable(['image', 'reference']);
parser.validateLink = (url) => /^https?:\/\//i.test(url);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

/** Shows a text in `element`; call `update` with a longer text as often as it grows. */
export class Markdown {
  #text = '';
  #lastStart = 0;
  #last = null;
  #scheduled = false;

  constructor(element) {
    this.element = element;
  }

  update(text) {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#clear();
    this.#text = text;
    if (!this.#scheduled) this.#render();
  }

  #clear() {
    this.element.replaceChildren();
    this.#last = null;
    this.#lastStart = 0;
  }

  /** Continues at the last block: those before it are complete. At least one is added: a slow machine may only parse in a frame. */
  #render() {
    const [started, before] = [performance.now(), this.#lastStart];
    for (const block of blocksFrom(this.#text, before)) {
      if (block.start === this.#lastStart && this.#last) this.#updateLast(block);
      else this.#append(block);
      this.#lastStart = block.start;
      const spent = performance.now() - started;
      if (spent > FRAME_MS && block.start > before) return this.#schedule(spent);
    }
    this.#scheduled = false;
  }

  /** A block that takes long to render leaves the browser as much time for everything else. */
  #schedule(spent) {
    this.#scheduled = true;
    if (document.hidden || spent > 2 * FRAME_MS) setTimeout(() => this.#render(), spent);
    else requestAnimationFrame(() => this.#render());
  }

  #updateLast(block) {
    if (block.code && block.language === this.#last.code?.language) {
      this.#last.code.update(block.code);
      return;
    }
    const previous = this.#last.element;
    this.#last = rendered(block);
    previous.replaceWith(this.#last.element);
  }

  /** Sections let the browser skip the layout of what is out of sight. */
  #append(block) {
    this.#last = rendered(block);
    const section = this.element.lastElementChild;
    if (section && section.children.length < BLOCKS_PER_SECTION) section.append(this.#last.element);
    else this.element.append(h('div', { class: 'section' }, this.#last.element));
  }
}

/** Top-level blocks of `text` from the offset `start` on: `{start, tokens}`, and for a code block `{language, code}`. */
function* blocksFrom(text, start) {
  for (let size = PARSED_AT_ONCE; start < text.length; ) {
    const source = sourceAt(text, start, size);
    const isRest = start + source.length === text.length;
    const blocks = blocksOf(source, start);
    // The last block of a piece may go on behind it: it is parsed again with the next piece.
    const complete = isRest ? blocks : blocks.slice(0, -1);
    yield* complete;
    if (isRest) return;
    if (complete.length) start = blocks.at(-1).start;
    else size *= 2;
  }
}

function sourceAt(text, start, size) {
  const end = text.indexOf('\n', start + size);
  return end < 0 ? text.slice(start) : text.slice(start, end + 1);
}

function blocksOf(source, start) {
  const offsets = lineOffsets(source);
  const blocks = [];
  for (const token of parser.parse(source, {})) {
    if (token.level === 0 && token.nesting >= 0) blocks.push({ start: start + offsets[token.map[0]], ...codeOf(token), tokens: [] });
    blocks.at(-1).tokens.push(token);
  }
  return blocks;
}

function codeOf({ type, content, info }) {
  if (type !== 'fence' && type !== 'code_block') return {};
  return { code: content, language: info.trim().split(/\s/)[0] };
}

function lineOffsets(source) {
  const offsets = [0];
  for (let at = source.indexOf('\n'); at >= 0; at = source.indexOf('\n', at + 1)) offsets.push(at + 1);
  return offsets;
}

function rendered(block) {
  if (block.code !== undefined) {
    const code = new Code(block.language);
    code.update(block.code);
    return { element: code.element, code };
  }
  const fragment = sanitized(parser.renderer.render(block.tokens, parser.options, {}));
  fragment.querySelectorAll('li').forEach(dropLineBreaks);
  fragment.querySelectorAll('li').forEach(markTask);
  fragment.querySelectorAll('pre').forEach(showNestedCode);
  return { element: fragment.firstElementChild ?? h('p') };
}

/** markdown-it puts a line break between the blocks of an item; read aloud or copied, it would be text. */
function dropLineBreaks(item) {
  for (const node of [...item.childNodes]) if (node.nodeType === Node.TEXT_NODE && !node.data.trim()) node.remove();
}

/** `- [x] item` becomes a checkbox. */
function markTask(item) {
  const text = document.createTreeWalker(item, NodeFilter.SHOW_TEXT).nextNode();
  const task = /^\s*\[([ xX])\] /.exec(text?.data ?? '');
  if (!task) return;
  text.data = text.data.slice(task[0].length);
  const done = task[1] !== ' ';
  text.before(h('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'to do' }), ' ');
}

/** Code within a list or a quote. */
function showNestedCode(pre) {
  const language = /language-(\S+)/.exec(pre.firstElementChild?.className ?? '')?.[1] ?? '';
  const code = new Code(language);
  code.update(pre.textContent);
  pre.replaceWith(code.element);
}

// How elements look beyond what markdown-it writes: headings below the page's own, text in its own direction, links in a new tab.

const rules = parser.renderer.rules;
const plain = (tokens, at, options, env, renderer) => renderer.renderToken(tokens, at, options);

for (const type of ['paragraph_open', 'list_item_open', 'heading_open', 'heading_close', 'th_open', 'td_open', 'link_open']) {
  rules[type] = (tokens, at, ...rest) => {
    adjust(tokens[at]);
    return plain(tokens, at, ...rest);
  };
}
rules.table_open = () => '<div class="table" tabindex="0"><table>';
rules.table_close = () => '</table></div>';

function adjust(token) {
  if (token.type.startsWith('heading')) token.tag = `h${Math.min(6, Number(token.tag[1]) + 2)}`;
  if (token.nesting < 0) return;
  if (token.tag === 'a') markExternal(token);
  else token.attrSet('dir', 'auto');
  if (token.attrGet('style')) alignByClass(token);
}

/** The page's policy forbids style attributes. */
function alignByClass(token) {
  token.attrs = token.attrs.map(([name, value]) => (name === 'style' ? ['class', value.replace('text-align:', '')] : [name, value]));
}

function markExternal(token) {
  token.attrSet('target', '_blank');
  token.attrSet('rel', 'noopener noreferrer nofollow');
  token.attrSet('title', token.attrGet('href'));
}
