/**
 * Markdown as models write it, made of elements: headings, paragraphs, lists, quotes, code, tables, emphasis, links.
 *
 * Text is cut into blocks. Of a text that grows only its last block is made again, and in one frame not more than there is time
 * for, so an answer of a megabyte streams as smoothly as a short one. Code is only added to.
 */
import { blocks } from './blocks.js';
import { h } from './dom.js';
import { inline } from './inline.js';
import { LongText } from './longtext.js';

const DEEPEST = 4;
const FRAME_MS = 12;
const BLOCKS_A_SECTION = 40;

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
    h(
      'div',
      { class: 'table', tabindex: '0' },
      h(
        'table',
        {},
        h('thead', {}, rowOf('th', block.head, block.aligned)),
        h(
          'tbody',
          {},
          block.rows.map((row) => rowOf('td', row, block.aligned)),
        ),
      ),
    ),
};

const ALIGNED = { r: 'right', lr: 'center' };

function rowOf(tag, row, aligned) {
  return h(
    'tr',
    {},
    row.map((cell, column) => h(tag, { class: ALIGNED[aligned[column]], dir: 'auto' }, inline(cell))),
  );
}

/** An item of one line is no paragraph of its own. */
function itemOf(text, depth) {
  const task = /^\[([ xX])\] /.exec(text);
  if (!task) return nested(text, depth);
  const box = h('input', {
    type: 'checkbox',
    disabled: true,
    checked: task[1] !== ' ',
    'aria-label': task[1] === ' ' ? 'to do' : 'done',
  });
  return [box, ' ', nested(text.slice(4), depth)].flat();
}

function nested(text, depth) {
  if (depth >= DEEPEST) return [text];
  const elements = [...blocks(text, 0)].map((block) => shown(block, depth + 1).element);
  const [first] = elements;
  if (first?.tagName !== 'P' || elements.slice(1).some((element) => element.tagName === 'P')) return elements;
  return [...first.childNodes, ...elements.slice(1)];
}
