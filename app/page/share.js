/** The page at `/s/<id>`: a shared session as whoever has its link sees it, by the same views, without any way to change it. */
import { api } from './api.js';
import { h, setText } from './dom.js';
import { errorText, titleOf } from './text.js';
import { ContextPanel, usageOf } from './views/context.js';
import { Conversation } from './views/conversation.js';
import { Drawer } from './views/drawer.js';

const byID = (id) => document.getElementById(id);

async function start() {
  const { session, messages, diff, todo } = await api.shared(location.pathname.split('/').at(-1));
  const conversation = new Conversation({ empty: h('p', { class: 'hint' }, 'No messages yet.') });
  const context = new ContextPanel();
  byID('main').append(conversation.element);
  byID('context').append(context.element);
  new Drawer(byID('context'), byID('open-context'), byID('main'));

  const title = titleOf(session);
  setText(byID('title'), title);
  document.title = title;
  conversation.update({ id: session.id, info: session, messages, cursor: null });
  conversation.toStart();
  const usage = usageOf(messages, () => 0);
  context.showUsage(usage, false);
  context.showTodos(todo);
  context.showFiles(diff);
  setText(byID('open-context'), context.brief(usage, todo));
}

/** A link that is not in use is answered with a page of its own; this one is for what goes wrong later. */
function showFailure(error) {
  setText(byID('title'), 'Not available');
  byID('open-context').hidden = true;
  byID('main').replaceChildren(h('div', { class: 'welcome' }, h('h2', {}, 'Not available'), h('p', {}, errorText(error))));
}

await start().catch(showFailure);
