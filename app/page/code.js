/** A code block: plain while it grows, coloured by highlight.js once it rests. */
import { h } from './dom.js';
import { LongText } from './longtext.js';
import { sanitized } from './sanitized.js';
import highlighter from './vendor/highlight.js';

const RESTS_AFTER_MS = 200;
const LONGEST_HIGHLIGHTED = 50_000;

export class Code {
  #text = '';
  #plain = null;
  #timer = 0;

  constructor(language) {
    this.language = language;
    this.pre = h('pre', { tabindex: '0', 'aria-label': `Code ${language}` });
    const label = language && h('span', { class: 'language' }, language.slice(0, 40));
    this.element = h('div', { class: 'code' }, label, this.pre);
  }

  update(text) {
    if (text === this.#text && this.pre.firstChild) return;
    this.#text = text;
    if (!this.#plain) this.pre.replaceChildren((this.#plain = new LongText(h('code'))).element);
    this.#plain.update(text);
    clearTimeout(this.#timer);
    if (this.#isHighlightable()) this.#timer = setTimeout(() => this.#highlight(), RESTS_AFTER_MS);
  }

  #isHighlightable() {
    return this.#text.length <= LONGEST_HIGHLIGHTED && highlighter.getLanguage(this.language);
  }

  #highlight() {
    const { value } = highlighter.highlight(this.#text, { language: this.language, ignoreIllegals: true });
    this.pre.replaceChildren(h('code', {}, sanitized(value)));
    this.#plain = null;
  }
}
