/** Modal dialogs: the browser's own <dialog> keeps the focus inside, and gives it back where it was. */
import { h } from '../dom.js';

const GUARD_MS = 350;

/**
 * Opens a dialog and resolves with the value of the button that closed it, null when it was dismissed (Esc).
 *
 * `buttons`: `{label, value, kind}`; the first one has the focus, and Enter in a field counts as the first one or as the field's
 * `data-enter`. `guarded`: the buttons sleep for a moment, so that a key which was meant for the prompt underneath decides
 * nothing. `closed`: an AbortSignal that takes the dialog away.
 */
export function showDialog({
  title,
  body = [],
  buttons = [{ label: 'Close', value: null }],
  wide = false,
  guarded = false,
  closed,
}) {
  const { promise, resolve } = Promise.withResolvers();
  const heading = h('h2', { tabindex: '-1' }, title);
  const row = buttons.map(({ label, value, kind }) =>
    h('button', { type: 'button', class: kind, disabled: guarded, onclick: () => close(value) }, label),
  );
  const dialog = h(
    'dialog',
    { class: wide ? 'wide' : '', 'aria-label': title },
    heading,
    h('div', { class: 'dialog-body' }, body),
    h('div', { class: 'buttons' }, row),
  );
  let armed = !guarded;

  function close(value) {
    dialog.close();
    dialog.remove();
    resolve(value);
  }

  function arm() {
    armed = true;
    for (const button of row) button.disabled = false;
    if (document.activeElement === heading) (dialog.querySelector('[autofocus]') ?? row[0]).focus();
  }

  dialog.addEventListener('cancel', (event) => {
    event.preventDefault();
    if (armed) close(null);
  });
  dialog.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing || !armed || event.target.tagName !== 'INPUT') return;
    event.preventDefault();
    close(event.target.dataset.enter ?? buttons[0].value);
  });
  closed?.addEventListener('abort', () => dialog.open && close(null));
  document.body.append(dialog);
  dialog.showModal();
  heading.focus();
  if (guarded) setTimeout(arm, GUARD_MS);
  else arm();
  return promise;
}

/** Asks for one line of text; null when dismissed. */
export async function askText({ title, label, value = '', action = 'Save' }) {
  const input = h('input', { type: 'text', value, 'aria-label': label, autofocus: true, class: 'text-field', dir: 'auto' });
  const buttons = [
    { label: action, value: true, kind: 'primary' },
    { label: 'Cancel', value: null },
  ];
  const chosen = await showDialog({ title, body: [h('label', {}, label, input)], buttons });
  return (chosen && input.value.trim()) || null;
}

export async function confirm({ title, text, action, kind = 'danger' }) {
  return (
    (await showDialog({
      title,
      body: [h('p', {}, text)],
      buttons: [
        { label: action, value: true, kind },
        { label: 'Cancel', value: null },
      ],
    })) === true
  );
}

/** A sentence about something that went wrong, at the top of the page for a while. */
export function notify(text, kind = 'failure') {
  const box = document.getElementById('notices') ?? document.body.appendChild(h('div', { id: 'notices', role: 'alert' }));
  const notice = h(
    'div',
    { class: `notice ${kind}` },
    h('span', { dir: 'auto' }, text),
    h('button', { type: 'button', class: 'icon', 'aria-label': 'Dismiss', onclick: () => notice.remove() }, '×'),
  );
  box.append(notice);
  setTimeout(() => notice.remove(), 10_000);
}
