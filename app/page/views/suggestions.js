/** What the prompt offers while one types: commands after a `/` at its start, files after an `@`. A listbox as ARIA wants it. */
import { h } from '../dom.js';
import { revealed } from '../text.js';

const FILE_PAUSE_MS = 120;

export class Suggestions {
  #items = [];
  #at = 0;
  #wanted = '';

  /** `commands()`: `{name, description}`; `findFiles(text)` finds paths; `picked(item)` is called with `{name}` or `{path, start, end}`. */
  constructor(input, { commands, findFiles, picked }) {
    Object.assign(this, { input, commands, findFiles, picked });
    this.element = h('ul', {
      class: 'suggestions',
      id: 'suggestions',
      role: 'listbox',
      'aria-label': 'Suggestions',
      hidden: true,
    });
    input.setAttribute('aria-controls', 'suggestions');
    input.setAttribute('aria-autocomplete', 'list');
    input.addEventListener('input', () => this.#look());
    input.addEventListener('blur', () => this.#show([]));
  }

  /** Whether the key was for the list. */
  key(event) {
    if (!this.#items.length) return false;
    if (event.key === 'Enter' && this.#isComplete()) {
      this.#show([]);
      return false;
    }
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') this.#move(event.key === 'ArrowDown' ? 1 : -1);
    else if (event.key === 'Enter' || event.key === 'Tab') this.#pick(this.#items[this.#at]);
    else if (event.key === 'Escape') this.#show([]);
    else return false;
    event.preventDefault();
    return true;
  }

  /** A command that is written out is run, not completed. */
  #isComplete() {
    return this.input.value === `/${this.#items[this.#at].name}`;
  }

  async #look() {
    const before = this.input.value.slice(0, this.input.selectionStart);
    const command = /^\/(\S*)$/.exec(before);
    const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
    this.#wanted = before;
    if (command)
      this.#show(
        this.commands()
          .filter(({ name }) => name.startsWith(command[1]))
          .map(({ name, description }) => ({ name, label: `/${name}`, description })),
      );
    else if (file) await this.#lookForFiles(file[1], before);
    else this.#show([]);
  }

  async #lookForFiles(text, before) {
    await new Promise((resolve) => setTimeout(resolve, FILE_PAUSE_MS));
    if (this.#wanted !== before) return;
    const paths = text ? await this.findFiles(text).catch(() => []) : [];
    if (this.#wanted !== before) return;
    const span = { start: before.length - text.length - 1, end: before.length };
    this.#show(paths.map((path) => ({ path, label: `@${path}`, ...span })));
  }

  #show(items) {
    this.#items = items;
    this.#at = 0;
    this.element.replaceChildren(...items.map((item, place) => this.#option(item, place)));
    this.element.hidden = items.length === 0;
    this.#mark();
  }

  #option(item, place) {
    const pick = (event) => {
      event.preventDefault();
      this.#pick(item);
    };
    return h(
      'li',
      { role: 'option', id: `suggestion-${place}`, onmousedown: pick },
      h('bdi', {}, revealed(item.label)),
      h('span', { class: 'hint' }, item.description ?? ''),
    );
  }

  #move(by) {
    this.#at = (this.#at + by + this.#items.length) % this.#items.length;
    this.#mark();
  }

  #mark() {
    [...this.element.children].forEach((option, place) => option.setAttribute('aria-selected', String(place === this.#at)));
    const current = this.element.children[this.#at];
    current?.scrollIntoView({ block: 'nearest' });
    if (current) this.input.setAttribute('aria-activedescendant', current.id);
    else this.input.removeAttribute('aria-activedescendant');
  }

  #pick(item) {
    this.#show([]);
    this.picked(item);
  }
}
