/** The user's actions: each is a request or two; their results arrive by the event stream. */
import { diffView } from './diff.js';
import { h } from './dom.js';
import { errorText, revealed, titleOf } from './text.js';
import { askText, confirm, notify, showDialog } from './views/dialog.js';
import { textOf } from './views/message.js';
import { noUndoText } from './views/status.js';

export class Actions {
  #takenBack = '';

  /** `composer()` is where text is put back to be changed; `go(sessionID)` shows a session, or with '' a new one. */
  constructor({ api, store, composer, go }) {
    Object.assign(this, { api, store, composer, go });
  }

  get #id() {
    return this.store.open?.id;
  }

  /** Runs an action; what goes wrong is shown. True if it went well. */
  async attempt(action) {
    try {
      await action();
      return true;
    } catch (error) {
      notify(errorText(error));
      return false;
    }
  }

  send({ text, files, agent, model }) {
    return this.attempt(async () => {
      const id = await this.#session();
      const parts = [{ type: 'text', text }, ...files.map((path) => filePart(path, text, this.store.directory))];
      await this.api.prompt(id, { parts, agent, model });
    });
  }

  /** The command's answer takes as long as its turn, which the stream shows: only what is wrong with it is waited for. */
  sendCommand(command, args, { agent, model }) {
    return this.attempt(async () => {
      const id = await this.#session();
      const running = this.api.command(id, {
        command,
        arguments: args,
        agent,
        model: model && `${model.providerID}/${model.modelID}`,
      });
      running.catch((error) => notify(errorText(error)));
    });
  }

  async #session() {
    if (this.#id) return this.#id;
    const session = await this.api.createSession();
    await this.go(session.id);
    return session.id;
  }

  stop() {
    return this.attempt(() => this.api.abort(this.#id));
  }

  compact() {
    return this.attempt(() => this.api.summarize(this.#id, this.composer().chosenModel()));
  }

  async rename() {
    const title = await askText({ title: 'Rename session', label: 'Title', value: titleOf(this.store.open.info) });
    return title !== null && this.attempt(() => this.api.rename(this.#id, title));
  }

  async remove() {
    const { id, info } = this.store.open;
    const sure = await confirm({
      title: 'Delete session?',
      text: `“${titleOf(info)}” and all it says will be gone. Files stay as they are.`,
      action: 'Delete',
    });
    if (!sure || !(await this.attempt(() => this.api.remove(id)))) return;
    this.go('');
    this.composer().input.focus();
  }

  /** A copy of all that stands before a message, whose text may be changed and sent anew; without one of the whole session. */
  fork(message) {
    return this.attempt(async () => {
      const copy = await this.api.fork(this.#id, message?.info.id);
      await this.go(copy.id);
      if (message) this.composer().put(textOf(message));
    });
  }

  copy(message) {
    return this.attempt(() => copyText(textOf(message)));
  }

  async share() {
    const { id, info } = this.store.open;
    if (!info.share) return this.attempt(async () => this.#showLink(await this.api.share(id)));
    return this.#showLink(info);
  }

  async #showLink({ id, share }) {
    const link = h('a', { href: share.url, target: '_blank', rel: 'noopener' }, share.url);
    const value = await showDialog({
      title: 'Shared session',
      body: [h('p', {}, 'Anyone with this link can read the session:'), h('p', { class: 'link' }, link)],
      buttons: [
        { label: 'Copy link', value: 'copy', kind: 'primary' },
        { label: 'Stop sharing', value: 'stop', kind: 'danger' },
        { label: 'Close', value: null },
      ],
    });
    if (value === 'copy') await this.attempt(() => copyText(share.url));
    if (value === 'stop') await this.attempt(() => this.api.unshare(id));
  }

  /** Shows first what would become of the files. */
  async revert(message) {
    const id = this.#id;
    await this.attempt(async () => {
      const { revert, noUndo } = await this.api.revert(id, message.info.id, true);
      const sure = await showDialog({
        title: 'Revert to before this prompt?',
        body: [
          h('p', {}, `This prompt and everything after it is reverted.${revert?.diff ? ' These file changes are reverted too:' : ''}`),
          noUndo && h('p', { class: 'warning' }, noUndoText(noUndo)),
          ...changesOf(revert),
        ],
        wide: Boolean(revert?.diff),
        buttons: [
          { label: 'Revert', value: true, kind: 'danger' },
          { label: 'Cancel', value: null },
        ],
      });
      if (!sure) return;
      await this.api.revert(id, message.info.id, false);
      this.#takenBack = textOf(message);
      this.composer().put(this.#takenBack);
    });
  }

  /** The newest prompt that is not reverted yet. */
  undo() {
    const { messages, info } = this.store.open;
    const at = info.revert ? messages.findIndex((message) => message.info.id === info.revert.messageID) : messages.length;
    const end = Math.max(at, 0);
    const prompt = messages.slice(0, end).findLast((message) => message.info.role === 'user' && textOf(message));
    return prompt && this.revert(prompt);
  }

  /** The prompt that the revert put back is in the conversation again; what was written since stays. */
  unrevert() {
    return this.attempt(async () => {
      await this.api.unrevert(this.#id);
      if (this.composer().input.value === this.#takenBack) this.composer().put('');
    });
  }

  showReverted() {
    const { revert } = this.store.open.info;
    return showDialog({ title: 'What the revert changed', body: changesOf(revert), wide: Boolean(revert.diff) });
  }
}

/** Browsers let a page write to the clipboard only by HTTPS, or on this machine. */
function copyText(text) {
  if (!navigator.clipboard) throw new Error('The browser lets pages copy by HTTPS alone. Select the text, and copy it yourself.');
  return navigator.clipboard.writeText(text);
}

function changesOf(revert) {
  const left = revert?.notReverted ?? [];
  return [
    revert?.diff ? diffView(revert.diff) : h('p', { class: 'hint' }, 'No file changes.'),
    left.length > 0 &&
      h(
        'div',
        { class: 'warning' },
        h('p', {}, 'These files do not change:'),
        h(
          'ul',
          {},
          left.map(({ file, reason }) => h('li', {}, h('bdi', { class: 'path' }, revealed(file)), `: ${reason}`)),
        ),
      ),
  ];
}

function filePart(path, text, directory) {
  const value = `@${path}`;
  const start = text.indexOf(value);
  return {
    type: 'file',
    mime: 'text/plain',
    filename: path,
    url: `file://${`${directory}/${path}`.split('/').map(encodeURIComponent).join('/')}`,
    source: { type: 'file', path, text: { value, start, end: start + value.length } },
  };
}
