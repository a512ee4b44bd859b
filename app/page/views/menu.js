/** What can be done with a session as a whole: a menu button as ARIA describes it, in the browser's own popover. */
import { h } from '../dom.js';

export class Menu {
  /** `items()`: `{label, hint, run, kind}` as they are when the menu opens. */
  constructor(button, items) {
    this.button = button;
    this.items = items;
    this.element = h('div', {
      id: 'menu',
      class: 'menu',
      role: 'menu',
      popover: 'auto',
      onkeydown: (event) => this.#key(event),
      ontoggle: (event) => this.#toggled(event),
    });
    button.addEventListener('click', () => this.#open());
    button.after(this.element);
  }

  #open() {
    this.element.replaceChildren(...this.items().map((item) => this.#item(item)));
    this.element.showPopover();
    this.element.firstElementChild?.focus();
  }

  #item({ label, hint, run, kind }) {
    const chosen = () => {
      this.element.hidePopover();
      this.button.focus();
      run();
    };
    return h(
      'button',
      { type: 'button', role: 'menuitem', class: kind, tabindex: '-1', onclick: chosen },
      label,
      hint && h('kbd', {}, hint),
    );
  }

  #toggled({ newState }) {
    this.button.setAttribute('aria-expanded', String(newState === 'open'));
  }

  #key(event) {
    if (event.key === 'Tab') this.element.hidePopover();
    const items = [...this.element.children];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to % items.length).focus();
  }
}
