/**
 * Who uses the page, where the server wants to know. The login is kept for this window alone, and sent with every request.
 *
 * The server's page itself needs none. A request that does is answered with 401; because of `X-Opensession-Page` without the
 * challenge for which a browser would show a dialog of its own, which knows no tokens.
 */
import { h } from './dom.js';
import { showDialog } from './views/dialog.js';

const KEY = 'opensession.login';
const DEFAULT_USER = 'opencode';
let asking = null;

/** `fetch` with the login; asks for one where the server does. */
export async function fetchLoggedIn(url, options = {}) {
  for (;;) {
    const login = sessionStorage.getItem(KEY);
    const response = await fetchAs(login, url, options);
    if (response.status !== 401) return response;
    if (login === sessionStorage.getItem(KEY)) await (asking ??= ask().finally(() => (asking = null)));
  }
}

const fetchAs = (login, url, { headers = {}, ...options } = {}) =>
  fetch(url, { ...options, headers: { ...headers, 'X-Opensession-Page': '1', ...(login ? { Authorization: login } : {}) } });

/** Until a login is accepted: one request tries it, because the server counts each wrong one. */
async function ask() {
  for (let refusal = null; ; ) {
    const login = await askOnce(refusal);
    const { status } = await fetchAs(login, '/project');
    if (status === 200) return sessionStorage.setItem(KEY, login);
    refusal = status === 429 ? 'Too many wrong logins. Try again in a minute.' : 'That login is not accepted.';
  }
}

async function askOnce(refusal) {
  const user = h('input', { type: 'text', class: 'text-field', autocomplete: 'username', placeholder: DEFAULT_USER });
  const secret = h('input', { type: 'password', class: 'text-field', autocomplete: 'current-password', autofocus: true });
  await showDialog({
    title: 'Log in',
    body: [
      refusal && h('p', { role: 'alert' }, refusal),
      h('label', {}, 'User name, for a password', user),
      h('label', {}, 'Password or token', secret),
    ],
    buttons: [{ label: 'Log in', value: true, kind: 'primary' }],
  });
  return authorization(user.value.trim(), secret.value.trim());
}

/** Tokens begin with `ost_`; those of an identity provider have three parts, of which the first is JSON in base64. */
function authorization(user, secret) {
  if (secret.startsWith('ost_') || /^ey[\w-]+\.[\w-]+\.[\w-]+$/.test(secret)) return `Bearer ${secret}`;
  const bytes = new TextEncoder().encode(`${user || DEFAULT_USER}:${secret}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}
