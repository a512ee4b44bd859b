/** The messages of a session. It follows its end while one is there, and leaves the reader alone elsewhere. */
import { arrange, h, Keyed } from '../dom.js';
import { count } from '../text.js';
import { MessageView } from './message.js';

const NEAR_END = 80;

export class Conversation {
  #views = new Keyed();
  #follows = true;
  #top = 0;
  #awaited = null;

  /** `actionsFor(role)`: what a message's buttons do; `showEarlier()` loads the page before; `empty`: shown without messages. */
  constructor({ actionsFor = () => [], showEarlier, empty }) {
    this.actionsFor = actionsFor;
    this.empty = empty;
    this.earlier = h(
      'button',
      { type: 'button', class: 'quiet earlier', onclick: showEarlier, hidden: true },
      'Show earlier messages',
    );
    this.list = h('div', { class: 'messages', role: 'log', 'aria-label': 'Messages' });
    this.newest = h('button', { type: 'button', class: 'newest', hidden: true, onclick: () => this.toEnd() }, '↓ Newest');
    this.scroller = h('div', { class: 'scroller', tabindex: '0' }, this.earlier, empty, this.list);
    this.scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.element = h('div', { class: 'messages-area' }, this.scroller, this.newest);
    const follow = new ResizeObserver(() => this.#follows && this.toEnd());
    for (const element of [this.list, this.scroller]) follow.observe(element);
  }

  /** `changed`: the ids of messages to show anew, null for all. */
  update({ id, messages, cursor, info }, changed = null) {
    this.earlier.hidden = !cursor;
    this.empty.hidden = messages.length > 0;
    const kept = notReverted(messages, info?.revert, cursor);
    const views = this.#views.match(
      kept,
      ({ info }) => `${id} ${info.id}`,
      (message) => new MessageView(message, this.actionsFor(message.info.role)),
    );
    kept.forEach((message, place) => {
      if (changed === null || changed.has(message.info.id) || views[place].message !== message) views[place].update(message);
    });
    this.#arrange(views.map((view) => view.element));
    if (this.#awaited) this.#showAwaited();
    if (this.#follows) this.toEnd();
  }

  /** What was read stays in sight when earlier messages come above it: at the very top browsers do not see to that themselves. */
  #arrange(elements) {
    const first = this.list.firstElementChild;
    const atTop = elements.indexOf(first) > 0 && this.scroller.scrollTop === 0;
    const before = atTop && first.getBoundingClientRect().top;
    arrange(this.list, elements);
    if (atTop) this.scroller.scrollTop = first.getBoundingClientRect().top - before;
  }

  /** What is shown without messages begins at its top. */
  toEnd() {
    this.#follows = true;
    this.newest.hidden = true;
    this.scroller.scrollTop = this.list.children.length ? this.scroller.scrollHeight : 0;
  }

  /** With the next update, a message is put in sight, with the focus on it. */
  showOnceThere(messageID) {
    this.#awaited = messageID;
  }

  #showAwaited() {
    const element = [...this.list.children].find(({ id }) => id === this.#awaited);
    this.#awaited = null;
    if (!element) return;
    this.#follows = false;
    element.focus({ preventScroll: true });
    element.scrollIntoView({ block: 'start' });
  }

  toStart() {
    this.#follows = false;
    this.scroller.scrollTop = 0;
  }

  /** Moves the focus by one message; from nowhere to the last one. */
  step(by) {
    const elements = [...this.list.children].filter((element) => !element.classList.contains('empty'));
    const at = elements.indexOf(document.activeElement?.closest('.message'));
    const next = elements[at < 0 ? elements.length - 1 : Math.min(Math.max(at + by, 0), elements.length - 1)];
    this.#follows = false;
    next?.focus();
    next?.scrollIntoView({ block: 'nearest' });
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    const atEnd = scrollTop + clientHeight >= scrollHeight - NEAR_END;
    if (atEnd || scrollTop < this.#top) this.#follows = atEnd;
    this.#top = scrollTop;
    this.newest.hidden = this.#follows;
  }
}

/** What a revert left standing: everything before its message, or before its part of that message. With a `cursor` the message may
 * be an earlier one. */
function notReverted(messages, revert, cursor) {
  const at = revert ? messages.findIndex(({ info }) => info.id === revert.messageID) : -1;
  if (at < 0) return revert && cursor ? [] : messages;
  const part = revert.partID ? messages[at].parts.findIndex(({ id }) => id === revert.partID) : -1;
  const rest = part > 0 ? [{ ...messages[at], parts: messages[at].parts.slice(0, part) }] : [];
  return [...messages.slice(0, at), ...rest];
}

/** The prompts that a revert took back, as a sentence. */
export function revertedText(messages, revert) {
  const at = messages.findIndex(({ info }) => info.id === revert.messageID);
  const prompts = messages.slice(Math.max(at, 0)).filter(({ info }) => info.role === 'user').length;
  return at < 0 ? 'Reverted.' : `${count(prompts, 'prompt')} and all that followed reverted.`;
}
