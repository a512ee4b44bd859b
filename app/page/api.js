/**
 * The server's routes that this page uses, one line each; openapi.yaml describes them all.
 *
 * `?directory=…` in the page's own address is passed on, so one server can be tried with several projects.
 */

import { fetchLoggedIn } from './login.js';

const directory = new URLSearchParams(location.search).get('directory');

export class ApiError extends Error {
  constructor(status, name, message) {
    super(message);
    this.status = status;
    this.name = name;
  }
}

export function address(path, query = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries({ directory, ...query })) {
    if (value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return url;
}

async function call(method, path, { query, body } = {}) {
  const response = await fetchLoggedIn(address(path, query), {
    method,
    headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(unreachable);
  if (!response.ok) throw await errorOf(response);
  return response;
}

function unreachable(cause) {
  throw new Error('The server cannot be reached.', { cause });
}

async function errorOf(response) {
  const body = await response.json().catch(() => null);
  const issue = body?.errors?.[0];
  const message = body?.data?.message ?? (issue ? `${issue.path.join('.')} ${issue.message}`.trim() : response.statusText);
  return new ApiError(response.status, body?.name ?? 'Error', message || `HTTP ${response.status}`);
}

const json = async (...request) => (await call(...request)).json();
const get = (path, query) => json('GET', path, { query });
const post = (path, body = {}) => json('POST', path, { body });
const of = (sessionID, rest = '') => `/session/${encodeURIComponent(sessionID)}${rest}`;

export const api = {
  place: () => get('/path'),
  config: () => get('/config'),
  providers: () => get('/config/providers'),
  agents: () => get('/agent'),
  commands: () => get('/command'),
  findMessages: (inDirectory, query) => get('/find/message', { directory: inDirectory, query }),
  findFiles: (query) => get('/find/file', { query, dirs: 'false', limit: 8 }),

  sessions: (inDirectory, { search, limit } = {}) => get('/session', { directory: inDirectory, roots: 1, search, limit }),
  statuses: () => get('/session/status'),
  session: (id) => get(of(id)),
  children: (id) => get(of(id, '/children')),
  createSession: () => post('/session'),
  rename: (id, title) => json('PATCH', of(id), { body: { title } }),
  remove: (id) => json('DELETE', of(id)),
  fork: (id, messageID) => post(of(id, '/fork'), { messageID }),
  todos: (id) => get(of(id, '/todo')),
  diff: (id) => get(of(id, '/diff')),
  share: (id) => post(of(id, '/share')),
  unshare: (id) => json('DELETE', of(id, '/share')),

  /** A page of messages, oldest first, and the cursor of the page before it (null: there is none). */
  async messages(id, { limit = 100, before } = {}) {
    const response = await call('GET', of(id, '/message'), { query: { limit, before } });
    const cursor = response.headers.get('X-Next-Cursor');
    return { messages: await response.json(), cursor };
  },
  message: (id, messageID) => get(of(id, `/message/${encodeURIComponent(messageID)}`)),

  /** Answers as soon as the prompt is stored; everything else comes by the event stream. */
  prompt: (id, body) => call('POST', of(id, '/prompt_async'), { body }),
  command: (id, body) => post(of(id, '/command'), body),
  abort: (id) => post(of(id, '/abort')),
  summarize: (id, model) => post(of(id, '/summarize'), model),
  /** With `dryRun` nothing is touched; the answer's `revert.diff` says what would become of the files. */
  revert: (id, messageID, dryRun) => post(of(id, '/revert'), { messageID, dryRun }),
  unrevert: (id) => post(of(id, '/unrevert')),

  permissions: () => get('/permission'),
  questions: () => get('/question'),
  replyPermission: (id, reply, message) => post(`/permission/${encodeURIComponent(id)}/reply`, { reply, message }),
  replyQuestion: (id, answers) => post(`/question/${encodeURIComponent(id)}/reply`, { answers }),
  rejectQuestion: (id) => post(`/question/${encodeURIComponent(id)}/reject`),

  shared: (shareID) => get(`/s/${encodeURIComponent(shareID)}/session`),
};
