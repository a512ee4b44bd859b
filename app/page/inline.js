/**
 * What stands within a line of Markdown: code, emphasis, links. Only http(s) addresses become links; any other stays the text
 * that it is, so nothing that a model writes can run when it is clicked.
 */
import { h } from './dom.js';

const SPECIAL = /[\\`*_~[]|https?:\/\//g;
const ADDRESS = /https?:\/\/[^\s<>"'`)\]]+/y;
const LINK = /\[([^[\]]*)\]\(\s*<?([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/y;
const MARKS = [
  ['**', 'strong'],
  ['__', 'strong'],
  ['~~', 'del'],
  ['*', 'em'],
  ['_', 'em'],
];
const ESCAPABLE = /[\\`*_~[\]()#+\-.!>|{}]/;

/** The nodes of a piece of text. */
export function inline(text) {
  return new Inline(text).nodes();
}

class Inline {
  #text;
  #at = 0;
  #nodes = [];
  #plain = '';
  /** Marks that have no closing one left: looking for it again and again would take quadratic time. */
  #unclosed = new Set();

  constructor(text) {
    this.#text = text;
  }

  nodes() {
    while (this.#at < this.#text.length) {
      SPECIAL.lastIndex = this.#at;
      const special = SPECIAL.exec(this.#text);
      this.#plainUntil(special ? special.index : this.#text.length);
      if (special && !this.#element(special[0])) this.#plainUntil(this.#at + 1);
    }
    this.#flush();
    return this.#nodes;
  }

  #element(found) {
    if (found === '\\') return this.#escape();
    if (found === '`') return this.#code();
    if (found === '[') return this.#link();
    if (found.startsWith('http')) return this.#address();
    return this.#emphasis();
  }

  #plainUntil(end) {
    this.#plain += this.#text.slice(this.#at, end);
    this.#at = end;
  }

  #flush() {
    if (this.#plain) this.#nodes.push(this.#plain);
    this.#plain = '';
  }

  #add(node, end) {
    this.#flush();
    this.#nodes.push(node);
    this.#at = end;
    return true;
  }

  #escape() {
    const next = this.#text[this.#at + 1];
    if (next === undefined || !ESCAPABLE.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #code() {
    const [mark] = /^`+/.exec(this.#text.slice(this.#at, this.#at + 100));
    const start = this.#at + mark.length;
    const end = this.#closing(mark, start);
    if (end < 0) {
      this.#plainUntil(start);
      return true;
    }
    const inner = this.#text.slice(start, end);
    const code = /^ .*\S.* $/s.test(inner) ? inner.slice(1, -1) : inner;
    return this.#add(h('code', {}, code), end + mark.length);
  }

  #link() {
    LINK.lastIndex = this.#at;
    const link = LINK.exec(this.#text);
    const href = link && safeAddress(link[2]);
    if (!href) return false;
    return this.#add(anchor(href, inline(link[1] || link[2])), LINK.lastIndex);
  }

  #address() {
    ADDRESS.lastIndex = this.#at;
    const found = ADDRESS.exec(this.#text)?.[0].replace(/[.,;:!?*_~]+$/, '');
    const href = found && safeAddress(found);
    if (!href) return false;
    return this.#add(anchor(href, [found]), this.#at + found.length);
  }

  #emphasis() {
    const [mark, tag] = MARKS.find(([mark]) => this.#text.startsWith(mark, this.#at)) ?? [];
    if (!mark || !this.#opens(mark)) return false;
    const start = this.#at + mark.length;
    const end = this.#closing(mark, start);
    if (end <= start || /\s/.test(this.#text[end - 1]) || (mark.includes('_') && /\w/.test(this.#text[end + mark.length] ?? '')))
      return false;
    return this.#add(h(tag, {}, inline(this.#text.slice(start, end))), end + mark.length);
  }

  /** `snake_case` and `2 * 3` are no emphasis. */
  #opens(mark) {
    const after = this.#text[this.#at + mark.length] ?? ' ';
    const before = this.#text[this.#at - 1] ?? ' ';
    return !/\s/.test(after) && after !== mark[0] && !(mark.includes('_') && /\w/.test(before));
  }

  #closing(mark, start) {
    if (this.#unclosed.has(mark)) return -1;
    let end = this.#text.indexOf(mark, start);
    while (mark.length === 1 && mark !== '`' && end >= 0 && this.#text[end + 1] === mark) end = this.#text.indexOf(mark, end + 2);
    if (end < 0) this.#unclosed.add(mark);
    return end;
  }
}

function anchor(href, children) {
  return h('a', { href, target: '_blank', rel: 'noopener noreferrer nofollow', title: href }, children);
}

function safeAddress(text) {
  try {
    const { protocol, href } = new URL(text);
    return protocol === 'http:' || protocol === 'https:' ? href : null;
  } catch {
    return null;
  }
}
