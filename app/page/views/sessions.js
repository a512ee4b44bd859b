/** The list of sessions, with search. What the page has loaded is filtered at once; the server finds the rest, and the messages. */
import { arrange, h, Keyed, setText } from '../dom.js';
import { ago, plain, titleOf } from '../text.js';
import { FoundMessages } from './found.js';

const SEARCH_PAUSE_MS = 200;

export class SessionList {
  #items = new Keyed();
  #found = new FoundMessages();
  #timer = null;

  /** `actions`: `{create(), search(text), find(text), more()}`. */
  constructor(store, actions) {
    this.store = store;
    this.search = h('input', {
      type: 'search',
      placeholder: 'Search all sessions',
      'aria-label': 'Search sessions',
      oninput: () => this.#searched(actions),
    });
    this.list = h('ul');
    this.none = h('p', { class: 'hint' });
    this.more = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: actions.more }, 'Show more');
    this.element = h(
      'div',
      { class: 'session-list' },
      h('button', { type: 'button', class: 'primary', id: 'new-session', onclick: actions.create }, 'New session'),
      this.search,
      this.list,
      this.none,
      this.more,
      this.#found.element,
    );
  }

  update({ hasMore }) {
    const wanted = plain(this.search.value.trim());
    const found = this.#roots().filter((session) => plain(titleOf(session)).includes(wanted));
    const items = this.#items.match(
      found,
      (session) => session.id,
      () => new SessionItem(),
    );
    found.forEach((session, place) => items[place].update(session, this.#stateOf(session.id), this.#isOpen(session.id)));
    arrange(
      this.list,
      items.map((item) => item.element),
    );
    this.none.hidden = found.length > 0;
    setText(this.none, wanted ? 'No session title matches.' : 'No sessions yet.');
    this.more.hidden = !hasMore || Boolean(wanted);
  }

  #roots() {
    const roots = [...this.store.sessions.values()].filter((session) => !session.parentID && !session.time.archived);
    return roots.sort((one, other) => other.time.updated - one.time.updated);
  }

  #isOpen(id) {
    return this.store.open !== null && this.#rootOf(this.store.open.id) === id;
  }

  #rootOf(id) {
    const parent = this.store.sessions.get(id)?.parentID;
    return parent ? this.#rootOf(parent) : id;
  }

  #stateOf(id) {
    const asks = [...this.store.permissions.values(), ...this.store.questions.values()];
    if (asks.some((ask) => this.#rootOf(ask.sessionID) === id)) return 'asks';
    return this.store.statusOf(id).type;
  }

  #searched(actions) {
    this.update({ hasMore: false });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#search(actions), SEARCH_PAUSE_MS);
  }

  /** An answer that comes when something else is searched for already is dropped. */
  async #search(actions) {
    const text = this.search.value.trim();
    actions.search(text);
    const found = text ? await actions.find(text) : null;
    if (this.search.value.trim() === text && found !== undefined) this.#found.show(found);
  }
}

const STATES = { idle: '', busy: 'working', retry: 'retrying', asks: 'needs your answer' };

class SessionItem {
  #title = h('span', { class: 'session-title', dir: 'auto' });
  #state = h('span', { class: 'state' });
  #time = h('time');
  #link = h('a', {}, this.#title, h('span', { class: 'session-note' }, this.#state, this.#time));
  element = h('li', {}, this.#link);

  update(session, state, isOpen) {
    this.#link.setAttribute('href', `#${session.id}`);
    if (isOpen) this.#link.setAttribute('aria-current', 'page');
    else this.#link.removeAttribute('aria-current');
    setText(this.#title, titleOf(session));
    setText(this.#time, ago(session.time.updated));
    setText(this.#state, STATES[state]);
    this.#link.dataset.state = state;
  }
}
