/**
 * The event stream, for as long as the page is open.
 *
 * `GET /event?parts=delta` is read with fetch; an EventSource would do as well and reconnect by itself, but it can send no headers
 * and gives up for good on an answer like 503. Events that are kept have an `id:`, as `parts=delta` asks. The newest one is sent back
 * as `Last-Event-ID`, and the server then sends what was missed, and the parts that are streaming as they are now.
 *
 * The same cursor lets the page read a session without losing or doubling a word: read it, then follow from a cursor of before.
 */
import { address } from './api.js';
import { fetchLoggedIn } from './login.js';

const SILENCE_MS = 60_000;
/** The server sends a heartbeat far more often: after so long without one the connection is dead. */
const DELAYS_MS = [250, 1000, 2000, 5000, 10_000];

export class EventStream {
  #load;
  #onEvent;
  #onState;
  #cursor = null;
  #stale = true;
  #connection = new AbortController();

  /**
   * `load()` reads all that the page shows; `onEvent(event)` takes one `{type, properties}`;
   * `onState(state)` is called with `{open: true}`, or `{open: false, retryAt}`.
   */
  constructor({ load, onEvent, onState }) {
    this.#load = load;
    this.#onEvent = onEvent;
    this.#onState = onState;
  }

  async run() {
    for (let failures = 0; ;) {
      this.#connection = new AbortController();
      try {
        await this.#connect(() => (failures = 0));
      } catch (error) {
        if (error.name !== 'AbortError' && error.name !== 'TypeError') console.warn('The event stream ended:', error);
      }
      if (this.#stale && this.#connection.signal.reason === REFRESH) continue;
      const delay = DELAYS_MS[Math.min(failures++, DELAYS_MS.length - 1)];
      this.#onState({ open: false, retryAt: Date.now() + delay });
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }

  /** Load again, and follow from where the stream is now. */
  refresh() {
    this.#stale = true;
    this.#connection.abort(REFRESH);
  }

  async #connect(onOpen) {
    if (this.#cursor === null) this.#cursor = await this.#newestId();
    if (this.#stale) {
      this.#stale = false;
      await this.#load().catch((error) => {
        this.#stale = true;
        throw error;
      });
    }
    const response = await this.#open(this.#cursor);
    onOpen();
    this.#onState({ open: true });
    for await (const { id, data } of frames(response, this.#connection)) {
      if (id !== null) this.#cursor = id;
      this.#take(JSON.parse(data));
    }
  }

  #take(event) {
    if (event.type === 'server.resync') this.refresh();
    else this.#onEvent(event);
  }

  async #open(cursor) {
    const headers = cursor === null ? {} : { 'Last-Event-ID': cursor };
    const response = await fetchLoggedIn(address('/event', { parts: 'delta' }), { headers, signal: this.#connection.signal });
    if (!response.ok) throw new Error(`GET /event answered ${response.status}`);
    return response;
  }

  /** A stream that is opened without a cursor greets with the present one. */
  async #newestId() {
    for await (const { id } of frames(await this.#open(null), this.#connection)) return id;
    throw new Error('The stream ended before it began');
  }
}

const REFRESH = new DOMException('to load again', 'AbortError');

/** The frames of a text/event-stream: `{id, data}`, id null where there is none. */
async function* frames(response, connection) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = '';
  try {
    for (;;) {
      const { value, done } = await within(SILENCE_MS, reader.read(), connection);
      if (done) return;
      let from = Math.max(0, buffer.length - 1);
      buffer += value;
      for (let end; (end = buffer.indexOf('\n\n', from)) >= 0; from = 0) {
        yield frameOf(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function frameOf(text) {
  const frame = { id: null, data: '' };
  for (const line of text.split('\n')) {
    if (line.startsWith('id: ')) frame.id = line.slice(4);
    else if (line.startsWith('data: ')) frame.data += line.slice(6);
  }
  return frame;
}

async function within(milliseconds, promise, connection) {
  const timer = setTimeout(() => connection.abort(), milliseconds);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}
