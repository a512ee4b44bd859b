/** The page at `/`: makes the views, keeps them current, and gives keys and buttons their meaning. */
import { Actions } from './actions.js';
import { api } from './api.js';
import { setText } from './dom.js';
import { Reader } from './reader.js';
import { Store } from './store.js';
import { EventStream } from './stream.js';
import { errorText, titleOf, workIn } from './text.js';
import { Asks } from './views/asks.js';
import { Composer } from './views/composer.js';
import { ContextPanel, usageOf } from './views/context.js';
import { Conversation, revertedText } from './views/conversation.js';
import { notify } from './views/dialog.js';
import { Drawer } from './views/drawer.js';
import { Menu } from './views/menu.js';
import { SessionList } from './views/sessions.js';
import { Shortcuts } from './views/shortcuts.js';
import { StatusBar } from './views/status.js';
import { welcome } from './views/welcome.js';

const QUIET_MS = 1500;
const MINUTE_MS = 60_000;
const byID = (id) => document.getElementById(id);

const store = new Store();
const reader = new Reader(api, store);
let providers = [];
let commands = [];
let sharing = true;
let [wanted, place] = addressed();
let opened = Promise.withResolvers();

// Views

const actions = new Actions({ api, store, composer: () => composer, go });
const context = new ContextPanel();
const status = new StatusBar({ unrevert: () => actions.unrevert(), showReverted: () => actions.showReverted() });
const asks = new Asks(store, api, status.asks);
const sessions = new SessionList(store, {
  create: newSession,
  search: (text) => actions.attempt(() => reader.sessionsNamed(text)),
  find: findMessages,
  more: () => actions.attempt(() => reader.moreSessions()),
});
const composer = new Composer({
  send: (prompt) => actions.send(prompt),
  stop: () => actions.stop(),
  run: (name, text, chosen) => (name in OWN_COMMANDS && store.open ? runOwn(name) : actions.sendCommand(name, text, chosen)),
  commands: () => [
    ...commands,
    ...(store.open ? ownCommands() : []).map(([name, { description }]) => ({ name, description })),
  ],
  findFiles: (text) => api.findFiles(text),
});
const conversation = new Conversation({
  actionsFor,
  showEarlier: () => actions.attempt(() => reader.earlierMessages()),
  empty: welcome((text) => composer.put(text)),
});

byID('sessions').append(sessions.element);
byID('main').append(conversation.element, status.element, composer.element);
byID('context').append(context.element);
const sessionDrawer = new Drawer(byID('sessions'), byID('open-sessions'), byID('main'));
new Drawer(byID('context'), byID('open-context'), byID('main'));

function actionsFor(role) {
  const copy = { label: 'Copy', title: 'Copy the text', run: (message) => actions.copy(message) };
  if (role === 'assistant') return [copy];
  return [
    { label: 'Revert', title: 'Revert this prompt and everything after it (r)', run: (message) => actions.revert(message) },
    { label: 'Fork', title: 'Fork from here into a new session (f)', run: (message) => actions.fork(message) },
    copy,
  ];
}

const OWN_COMMANDS = {
  compact: { description: 'Compact the conversation', run: () => actions.compact() },
  fork: { description: 'Copy the session', run: () => actions.fork() },
  redo: { description: 'Undo the revert', run: () => actions.unrevert() },
  rename: { description: 'Rename the session', run: () => actions.rename() },
  share: { description: 'Share the session', run: () => actions.share() },
  undo: { description: 'Revert the last prompt', run: () => actions.undo() },
};

function ownCommands() {
  return Object.entries(OWN_COMMANDS).filter(([name]) => name !== 'share' || sharable());
}

/** A link that there is can be taken back where sharing is turned off. */
function sharable() {
  return sharing || Boolean(store.open.info.share);
}

/** The prompt is done with, whatever becomes of the dialog that a command may open. */
async function runOwn(name) {
  composer.put('');
  await OWN_COMMANDS[name].run();
  return false;
}

// From the address to the open session

/** The session and, behind a slash, the message to begin at. */
function addressed() {
  return location.hash.slice(1).split('/');
}

/** Who still waits for another session goes on with this one. */
function go(sessionID) {
  const before = opened;
  opened = Promise.withResolvers();
  opened.promise.then(before.resolve);
  if (location.hash.slice(1) === sessionID) open();
  else location.hash = sessionID;
  return opened.promise;
}

function newSession() {
  sessionDrawer.close();
  go('');
  composer.input.focus();
}

function open() {
  [wanted, place] = addressed();
  sessionDrawer.close();
  if (wanted) return stream.refresh();
  store.openSession(null);
  opened.resolve();
}

async function load() {
  const id = wanted;
  const found = await reader.everything(id);
  if (id !== wanted) return;
  if (id && !found) forgetAddress();
  store.openSession(found);
  if (found) composer.choose(lastChoice(found.messages));
  if (found && place) showFrom(place);
  opened.resolve();
}

/** Once: when the page loads again later, it stays where its reader is. */
async function showFrom(messageID) {
  place = undefined;
  await actions.attempt(() => reader.messagesFrom(messageID));
  conversation.showOnceThere(messageID);
  store.changed('conversation');
}

/** Undefined where that went wrong. */
async function findMessages(text) {
  let found;
  await actions.attempt(async () => {
    found = await reader.messagesSaying(text);
  });
  return found;
}

function forgetAddress() {
  notify('This session does not exist.');
  wanted = '';
  history.replaceState(null, '', `${location.pathname}${location.search}`);
}

function lastChoice(messages) {
  const prompt = messages.findLast(({ info }) => info.role === 'user')?.info;
  return { agent: prompt?.agent, model: prompt?.model };
}

// From what has changed to what is shown

const NO_SESSION = { id: '', info: null, messages: [], cursor: null, todos: [], diff: [] };

/** Which topics need which part of the page shown anew. */
const UPDATES = [
  [['sessions', 'asks'], () => sessions.update({ hasMore: reader.hasMore })],
  [['session', 'conversation'], (shown) => conversation.update(shown)],
  [['message', 'part'], (shown, messages) => conversation.update(shown, messages)],
  [['session'], showSession],
  [['asks', 'sessions'], () => asks.update()],
  [['status', 'asks'], showStatus],
  [['conversation', 'message', 'todos'], showUsage],
  [['todos'], ({ todos }) => context.showTodos(todos)],
  [['diff', 'session'], ({ diff, info }) => context.showFiles(diff, Boolean(info?.revert))],
];

store.subscribe(({ topics, messages }) => {
  for (const [wanted, update] of UPDATES) {
    if (wanted.some((topic) => topics.has(topic))) update(store.open ?? NO_SESSION, messages);
  }
});

function showSession({ info, messages }) {
  const title = info ? titleOf(info) : 'New session';
  setText(byID('title'), title);
  document.title = info ? `${title} – Opensession` : 'Opensession';
  byID('open-menu').hidden = info === null;
  const link = byID('share-link');
  link.hidden = !info?.share && !info?.parentID;
  setText(link, info?.parentID ? '↑ Parent session' : 'Shared');
  status.showRevert(info?.revert ? revertedText(messages, info.revert) : null);
  status.showNoUndo(info?.noUndo);
}

function showStatus({ id }) {
  const now = store.statusOf(id);
  status.show(now, asks.waiting.length > 0);
  composer.showBusy(now.type !== 'idle');
}

function showUsage({ messages, cursor, todos }) {
  const usage = usageOf(messages, limitOf);
  context.showUsage(usage, Boolean(cursor));
  setText(byID('open-context'), context.brief(usage, todos));
}

function limitOf(providerID, modelID) {
  return providers.find(({ id }) => id === providerID)?.models[modelID]?.limit.context ?? 0;
}

let quiet = null;

/** A connection that is back at once is not worth a word. */
function showConnection({ open, retryAt }) {
  clearTimeout(quiet);
  const seconds = Math.ceil((retryAt - Date.now()) / 1000);
  if (open) setText(byID('connection'), '');
  else quiet = setTimeout(() => setText(byID('connection'), 'Connection lost. Reconnecting…'), seconds > 1 ? 0 : QUIET_MS);
}

// Keys and menus

new Menu(byID('open-menu'), () => [
  { label: 'Rename…', run: OWN_COMMANDS.rename.run },
  { label: 'Fork', run: OWN_COMMANDS.fork.run },
  { label: 'Compact', run: OWN_COMMANDS.compact.run },
  { label: 'Undo last prompt…', hint: 'u', run: OWN_COMMANDS.undo.run },
  ...(sharable() ? [{ label: store.open.info.share ? 'Share link…' : 'Share', run: OWN_COMMANDS.share.run }] : []),
  { label: 'Delete…', kind: 'danger', run: () => actions.remove() },
]);

function focused() {
  const id = document.activeElement?.closest('.message')?.id;
  const message = id && store.message(id);
  return message?.info.role === 'user' ? message : null;
}

function onFocused(run) {
  const message = focused();
  if (message) run(message);
}

const shortcuts = new Shortcuts(
  [
    { key: '?', does: 'Show this', run: () => shortcuts.help() },
    { key: 'n', does: 'New session', run: newSession },
    { key: '/', does: 'Search sessions', run: searchSessions },
    { key: 'p', does: 'Go to the prompt', run: () => composer.input.focus() },
    { key: 'k', shown: 'k, j', does: 'Previous, next message', run: () => conversation.step(-1) },
    { key: 'j', run: () => conversation.step(1) },
    { key: 'r', does: 'On a prompt: revert it and everything after it', run: () => onFocused((message) => actions.revert(message)) },
    { key: 'f', does: 'On a prompt: fork before it', run: () => onFocused((message) => actions.fork(message)) },
    { key: 'u', does: 'Undo: revert the last prompt', run: () => store.open && actions.undo() },
    { key: 'U', shown: 'Shift+U', does: 'Redo: undo the revert', run: () => store.open?.info.revert && actions.unrevert() },
    { key: 'm', does: 'Session menu', run: () => store.open && byID('open-menu').click() },
    {
      key: 'Escape',
      shown: 'Esc',
      does: 'Stop the answer, also from the prompt',
      run: () => store.open && store.statusOf(store.open.id).type !== 'idle' && actions.stop(),
    },
  ],
  [
    { shown: 'Enter', does: 'Send; Shift+Enter begins a line' },
    { shown: '/ and @', does: 'In the prompt: commands and files' },
    { shown: 'Enter, Esc', does: 'In a permission: allow once, reject' },
  ],
);

function searchSessions() {
  if (getComputedStyle(byID('open-sessions')).display !== 'none') sessionDrawer.open();
  sessions.search.focus();
}

function linkChosen() {
  const { parentID } = store.open.info;
  if (parentID) go(parentID);
  else actions.share();
}

byID('open-help').addEventListener('click', () => shortcuts.help());
byID('share-link').addEventListener('click', linkChosen);
byID('skip').addEventListener('click', (event) => {
  event.preventDefault();
  composer.input.focus();
});
byID('sessions').addEventListener('click', ({ target }) => target.closest('a')?.hash === location.hash && open());
window.addEventListener('hashchange', open);

// Start

const stream = new EventStream({ load, onEvent: take, onState: showConnection });

function take(event) {
  store.apply(event);
  if (event.type === 'session.error') tellError(event.properties);
}

/** Shows errors outside of turns, such as files that an unrevert could not restore; those of a turn stand in its message. */
function tellError({ sessionID, error }) {
  if (sessionID === store.open?.id && store.statusOf(sessionID).type === 'idle') notify(errorText(error));
}

async function start() {
  const [agents, connected, config] = await Promise.all([api.agents(), api.providers(), api.config()]);
  ({ providers } = connected);
  // Not waited for: the list is there when all MCP servers are connected.
  api.commands().then((known) => (commands = known), (error) => notify(errorText(error)));
  sharing = config.share !== 'disabled';
  composer.offer(agents, providers);
  composer.choose({ agent: config.default_agent, model: configuredModel(config, connected) });
  document.body.classList.toggle(
    'is-scripted',
    providers.every(({ id }) => id === 'scripted'),
  );
  const { directory } = await api.place();
  workIn(directory);
  setText(byID('where'), directory);
  stream.run();
}

function configuredModel({ model }, { default: defaults }) {
  const [providerID, ...rest] = model?.split('/') ?? Object.entries(defaults)[0] ?? [];
  return providerID && { providerID, modelID: rest.join('/') };
}

/** The list says how long ago sessions changed. */
setInterval(() => store.changed('sessions'), MINUTE_MS);
store.openSession(null);
await start().catch((error) => notify(`Unexpected answer of the server: ${errorText(error)}`));
