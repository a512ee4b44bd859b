// official_sdk.mjs BASE_URL v1|v2: use a running server through the official SDK and print what was seen, as JSON.
import { createOpencodeClient as createV1 } from "@opencode-ai/sdk"
import { createOpencodeClient as createV2 } from "@opencode-ai/sdk/v2"

const [baseUrl, surface] = process.argv.slice(2)
const textPart = (text) => [{ type: "text", text }]

// The SDK has two surfaces for the same routes: v1 takes {path, body}, v2 takes flat parameters.
function v1() {
  const { session, event } = createV1({ baseUrl, throwOnError: true })
  const at = (id, body) => ({ path: { id }, body })
  return {
    subscribe: (signal) => event.subscribe({ signal }),
    create: (title) => session.create({ body: { title } }),
    get: (id) => session.get({ ...at(id), throwOnError: false }),
    list: () => session.list(),
    status: () => session.status(),
    prompt: (id, text) => session.prompt(at(id, { parts: textPart(text) })),
    promptAsync: (id, text) => session.promptAsync(at(id, { parts: textPart(text) })),
    abort: (id) => session.abort(at(id)),
    messages: (id) => session.messages(at(id)),
    fork: (id, messageID) => session.fork(at(id, messageID ? { messageID } : undefined)),
    remove: (id) => session.delete(at(id)),
  }
}

function v2() {
  const { session, event } = createV2({ baseUrl, throwOnError: true })
  return {
    subscribe: (signal) => event.subscribe({}, { signal }),
    create: (title) => session.create({ title }),
    get: (sessionID) => session.get({ sessionID }, { throwOnError: false }),
    list: () => session.list(),
    status: () => session.status(),
    prompt: (sessionID, text) => session.prompt({ sessionID, parts: textPart(text) }),
    promptAsync: (sessionID, text) => session.promptAsync({ sessionID, parts: textPart(text) }),
    abort: (sessionID) => session.abort({ sessionID }),
    messages: (sessionID) => session.messages({ sessionID }),
    fork: (sessionID, messageID) => session.fork({ sessionID, messageID }),
    remove: (sessionID) => session.delete({ sessionID }),
  }
}

class Events {
  seen = []
  #waiting = []

  async listen(stream) {
    for await (const event of stream) {
      this.seen.push(event)
      this.#waiting = this.#waiting.filter(({ matches, resolve }) => !(matches(event) && (resolve(event), true)))
    }
  }

  // The first event that matches, also one that has come already.
  first(matches) {
    const found = this.seen.find(matches)
    return found ? Promise.resolve(found) : new Promise((resolve) => this.#waiting.push({ matches, resolve }))
  }

  deltas(sessionID) {
    return this.seen.filter((e) => isDelta(e, sessionID)).map((e) => e.properties.delta)
  }

  types(sessionID) {
    return this.seen.filter((e) => sessionOf(e) === sessionID).map((e) => e.type)
  }
}

const sessionOf = ({ properties: p }) => p.sessionID ?? p.part?.sessionID ?? p.info?.sessionID ?? p.info?.id
const isDelta = (e, sessionID) => e.type === "message.part.updated" && Boolean(e.properties.delta) && sessionOf(e) === sessionID
const isIdle = (sessionID) => (e) => e.type === "session.idle" && sessionOf(e) === sessionID
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
const shape = (messages) => messages.map(({ info, parts }) => [info.role, ...parts.map((part) => part.type)])

async function oneTurn(client, events) {
  const session = (await client.create("from the SDK")).data
  const reply = (await client.prompt(session.id, "first")).data
  await events.first(isIdle(session.id))
  const stored = (await client.messages(session.id)).data
  return {
    session,
    info: reply.info,
    text: textOf(reply),
    deltas: events.deltas(session.id),
    events: events.types(session.id),
    shape: shape(stored),
    storedText: textOf(stored.at(-1)),
    userMessage: stored[0].info.id,
    listed: (await client.list()).data.some(({ id }) => id === session.id),
  }
}

async function abortedTurn(client, events) {
  const session = (await client.create("aborted")).data
  const accepted = (await client.promptAsync(session.id, "second")).response.status
  await events.first((e) => isDelta(e, session.id))
  const busy = (await client.status()).data[session.id]?.type
  const aborted = (await client.abort(session.id)).data
  await events.first(isIdle(session.id))
  const last = (await client.messages(session.id)).data.at(-1)
  const idle = !(session.id in (await client.status()).data)
  return { accepted, busy, aborted, idle, error: last.info.error?.name, completed: Boolean(last.info.time.completed), text: textOf(last) }
}

async function forks(client, sessionID, messageID) {
  const whole = (await client.fork(sessionID)).data
  const empty = (await client.fork(sessionID, messageID)).data
  const messages = (await client.messages(whole.id)).data
  return {
    title: whole.title,
    shape: shape(messages),
    owned: messages.every(({ info }) => info.sessionID === whole.id),
    beforeFirst: (await client.messages(empty.id)).data.length,
  }
}

async function deletion(client, sessionID) {
  const deleted = (await client.remove(sessionID)).data
  const gone = await client.get(sessionID)
  return { deleted, status: gone.response.status, error: gone.error?.name }
}

const client = surface === "v1" ? v1() : v2()
const closing = new AbortController()
const events = new Events()
const { stream } = await client.subscribe(closing.signal)
const listening = events.listen(stream)
await events.first((e) => e.type === "server.connected")

const turn = await oneTurn(client, events)
const abort = await abortedTurn(client, events)
const fork = await forks(client, turn.session.id, turn.userMessage)
const remove = await deletion(client, turn.session.id)
closing.abort()
await listening
console.log(JSON.stringify({ turn, abort, fork, remove }))
