/**
 * What the page knows, kept current by the server's events.
 *
 * Subscribed views are notified once a frame of what has changed: `topics` (`sessions`, `status`, `asks`, `session`, `conversation`,
 * `todos`, `diff`) and the ids of the `messages` whose info or parts have.
 */
export class Store {
  sessions = new Map();
  /** Sessions that are not idle. */
  statuses = new Map();
  permissions = new Map();
  questions = new Map();
  /** The open session: `{id, info, messages: [{info, parts}], cursor, todos, diff}`, or null. */
  open = null;

  #subscribers = [];
  #changes = null;

  subscribe(subscriber) {
    this.#subscribers.push(subscriber);
  }

  /** Note a change; subscribers hear of all of them in the next frame. A hidden tab has no frames, so there a timer stands in. */
  changed(topic, messageID) {
    if (this.#changes === null) {
      this.#changes = { topics: new Set(), messages: new Set() };
      if (document.hidden) setTimeout(() => this.#tell(), 200);
      else requestAnimationFrame(() => this.#tell());
    }
    this.#changes.topics.add(topic);
    if (messageID) this.#changes.messages.add(messageID);
  }

  #tell() {
    const changes = this.#changes;
    this.#changes = null;
    for (const subscriber of this.#subscribers) subscriber(changes);
  }

  // What was read from the server

  putSessions(sessions) {
    for (const session of sessions) this.sessions.set(session.id, session);
    this.changed('sessions');
  }

  replaceLists({ sessions, statuses, permissions, questions }) {
    this.sessions = byId(sessions);
    this.statuses = new Map(Object.entries(statuses));
    this.permissions = byId(permissions);
    this.questions = byId(questions);
    for (const topic of ['sessions', 'status', 'asks']) this.changed(topic);
  }

  openSession(open) {
    this.open = open;
    for (const topic of ['session', 'conversation', 'todos', 'diff', 'status', 'asks', 'sessions']) this.changed(topic);
  }

  /** An earlier page of the open session's messages. */
  prepend(messages, cursor) {
    this.open.messages.unshift(...messages);
    this.open.cursor = cursor;
    this.changed('conversation');
  }

  // What the server announces

  apply(event) {
    HANDLERS[event.type]?.(this, event.properties);
  }

  message(id) {
    return this.open?.messages.findLast((message) => message.info.id === id);
  }

  statusOf(sessionID) {
    return this.statuses.get(sessionID) ?? { type: 'idle' };
  }

  /** Whether a session is the open one or a subagent's below it. */
  isBelowOpen(sessionID) {
    for (let id = sessionID; id; id = this.sessions.get(id)?.parentID) if (id === this.open?.id) return true;
    return false;
  }
}

const byId = (values) => new Map(values.map((value) => [value.id, value]));

const HANDLERS = {
  'session.created': putSession,
  'session.updated': putSession,
  'session.deleted'(store, { info }) {
    store.sessions.delete(info.id);
    if (store.open?.id === info.id) store.openSession(null);
    store.changed('sessions');
  },
  'session.status'(store, { sessionID, status }) {
    if (status.type === 'idle') store.statuses.delete(sessionID);
    else store.statuses.set(sessionID, { since: store.statuses.get(sessionID)?.since ?? Date.now(), ...status });
    store.changed('status');
    store.changed('sessions');
  },
  'session.diff'(store, { sessionID, diff }) {
    if (sessionID !== store.open?.id) return;
    store.open.diff = diff;
    store.changed('diff');
  },
  'todo.updated'(store, { sessionID, todos }) {
    if (sessionID !== store.open?.id) return;
    store.open.todos = todos;
    store.changed('todos');
  },
  'message.updated'(store, { info }) {
    if (info.sessionID !== store.open?.id) return;
    const message = store.message(info.id);
    const { cursor, messages } = store.open;
    if (!message && cursor && info.time.created < messages[0].info.time.created) return;
    if (message) message.info = info;
    else store.open.messages.push({ info, parts: [] });
    store.changed(message ? 'message' : 'conversation', info.id);
  },
  'message.removed'(store, { sessionID, messageID }) {
    if (sessionID !== store.open?.id) return;
    store.open.messages = store.open.messages.filter((message) => message.info.id !== messageID);
    store.changed('conversation');
  },
  'message.part.updated'(store, { part }) {
    const message = part.sessionID === store.open?.id && store.message(part.messageID);
    if (!message) return;
    const place = message.parts.findLastIndex((other) => other.id === part.id);
    if (place < 0) message.parts.push(part);
    else message.parts[place] = part;
    store.changed('part', message.info.id);
  },
  /** What a part gained; the first gain is the first that is heard of it. */
  'message.part.delta'(store, { sessionID, messageID, partID, partType, field, delta }) {
    const message = sessionID === store.open?.id && store.message(messageID);
    if (!message) return;
    const part = message.parts.findLast((other) => other.id === partID);
    if (part) part[field] += delta;
    else message.parts.push({ id: partID, sessionID, messageID, type: partType, [field]: delta });
    store.changed('part', messageID);
  },
  'message.part.removed'(store, { sessionID, messageID, partID }) {
    const message = sessionID === store.open?.id && store.message(messageID);
    if (!message) return;
    message.parts = message.parts.filter((part) => part.id !== partID);
    store.changed('part', messageID);
  },
  'permission.asked': (store, request) => putAsk(store, store.permissions, request),
  'permission.replied': (store, { requestID }) => dropAsk(store, store.permissions, requestID),
  'question.asked': (store, request) => putAsk(store, store.questions, request),
  'question.replied': (store, { requestID }) => dropAsk(store, store.questions, requestID),
  'question.rejected': (store, { requestID }) => dropAsk(store, store.questions, requestID),
};

function putSession(store, { info }) {
  store.sessions.set(info.id, info);
  store.changed('sessions');
  if (store.open?.id !== info.id) return;
  store.open.info = info;
  store.changed('session');
}

function putAsk(store, asks, request) {
  asks.set(request.id, request);
  store.changed('asks');
}

function dropAsk(store, asks, requestID) {
  asks.delete(requestID);
  store.changed('asks');
}
