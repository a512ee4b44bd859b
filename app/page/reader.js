/** What the page reads from the server; the events keep it current from there on. */

const SESSIONS = 100;

export class Reader {
  #limit = SESSIONS;

  constructor(api, store) {
    Object.assign(this, { api, store });
  }

  get hasMore() {
    return this.store.sessions.size >= this.#limit;
  }

  /** The lists, and with an id that session: its latest messages and what belongs to it. Null when there is none of that id. */
  async everything(id) {
    const { directory } = await this.api.place();
    this.store.directory = directory;
    const [sessions, statuses, permissions, questions, found] = await Promise.all([
      this.api.sessions(directory, { limit: this.#limit }),
      this.api.statuses(),
      this.api.permissions(),
      this.api.questions(),
      id ? this.#session(id).catch(nullIfUnknown) : null,
    ]);
    const family = found?.family ?? [];
    const asking = await this.#asking([...permissions, ...questions], [...sessions, ...family]);
    this.store.replaceLists({ sessions, statuses, permissions, questions });
    this.store.putSessions([...family, ...asking]);
    return found?.open ?? null;
  }

  async #session(id) {
    const [info, page, todos, diff, children] = await Promise.all([
      this.api.session(id),
      this.api.messages(id),
      this.api.todos(id),
      this.api.diff(id),
      this.api.children(id),
    ]);
    return { open: { id, info, ...page, todos, diff }, family: [...(await this.#above(info)), info, ...children] };
  }

  /** A subagent's session has a parent, which may have one too; a client may have named one that is not there. */
  async #above({ parentID }) {
    const parent = parentID ? await this.api.session(parentID).catch(nullIfUnknown) : null;
    return parent ? [...(await this.#above(parent)), parent] : [];
  }

  /** The sessions that wait for an answer and are not known, with those above them: subagents' are in no list. */
  async #asking(asks, known) {
    const unknown = new Set(asks.map((ask) => ask.sessionID)).difference(new Set(known.map(({ id }) => id)));
    const found = [...unknown].map(async (id) => {
      const info = await this.api.session(id);
      return [...(await this.#above(info)), info];
    });
    return (await Promise.all(found.map((each) => each.catch(nullIfUnknown)))).flat().filter(Boolean);
  }

  async earlierMessages() {
    const { id, cursor } = this.store.open;
    const page = await this.api.messages(id, { before: cursor });
    if (this.store.open?.id === id) this.store.prepend(page.messages, page.cursor);
  }

  /** Loads earlier pages until one has the message, or there are no more. */
  async messagesFrom(messageID) {
    const { open } = this.store;
    while (this.store.open === open && open?.cursor && !this.store.message(messageID)) await this.earlierMessages();
  }

  messagesSaying(text) {
    return this.api.findMessages(this.store.directory, text);
  }

  async sessionsNamed(search) {
    if (search) this.store.putSessions(await this.api.sessions(this.store.directory, { search, limit: SESSIONS }));
  }

  async moreSessions() {
    this.#limit += SESSIONS;
    this.store.putSessions(await this.api.sessions(this.store.directory, { limit: this.#limit }));
  }
}

function nullIfUnknown(error) {
  if (error.status === 404 || error.status === 400) return null;
  throw error;
}
