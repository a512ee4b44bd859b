// official_sdk.mjs BASE_URL v1|v2: use a running server through the official SDK and print what was seen, as JSON.
import { Events, isDelta, isIdle } from "./sdk_events.mjs"
import { open } from "./sdk_surfaces.mjs"

const [baseUrl, surface] = process.argv.slice(2)
const textPart = (text) => [{ type: "text", text }]
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
const shape = (messages) => messages.map(({ info, parts }) => [info.role, ...parts.map((part) => part.type)])

async function oneTurn(client, events) {
  const session = (await client.session.create({ title: "from the SDK" })).data
  const reply = (await client.session.prompt({ sessionID: session.id, parts: textPart("first") })).data
  await events.first(isIdle(session.id))
  const stored = (await client.session.messages({ sessionID: session.id })).data
  return {
    session,
    info: reply.info,
    text: textOf(reply),
    deltas: events.deltas(session.id),
    events: events.types(session.id),
    shape: shape(stored),
    storedText: textOf(stored.at(-1)),
    userMessage: stored[0].info.id,
    listed: (await client.session.list()).data.some(({ id }) => id === session.id),
  }
}

async function abortedTurn(client, events) {
  const session = (await client.session.create({ title: "aborted" })).data
  const accepted = (await client.session.promptAsync({ sessionID: session.id, parts: textPart("second") })).response.status
  await events.first((e) => isDelta(e, session.id))
  const busy = (await client.session.status()).data[session.id]?.type
  const aborted = (await client.session.abort({ sessionID: session.id })).data
  await events.first(isIdle(session.id))
  const last = (await client.session.messages({ sessionID: session.id })).data.at(-1)
  const idle = !(session.id in (await client.session.status()).data)
  return { accepted, busy, aborted, idle, error: last.info.error?.name, completed: Boolean(last.info.time.completed), text: textOf(last) }
}

async function forks(client, sessionID, messageID) {
  const whole = (await client.session.fork({ sessionID })).data
  const empty = (await client.session.fork({ sessionID, messageID })).data
  const messages = (await client.session.messages({ sessionID: whole.id })).data
  return {
    title: whole.title,
    shape: shape(messages),
    owned: messages.every(({ info }) => info.sessionID === whole.id),
    beforeFirst: (await client.session.messages({ sessionID: empty.id })).data.length,
  }
}

async function deletion(client, sessionID) {
  const deleted = (await client.session.delete({ sessionID })).data
  const gone = await client.session.get({ sessionID })
  return { deleted, status: gone.response.status, error: gone.error?.name }
}

const { client } = open(surface, baseUrl)
const closing = new AbortController()
const events = new Events()
const { stream } = await client.event.subscribe({}, { signal: closing.signal })
const listening = events.listen(stream)
await events.first((e) => e.type === "server.connected")

const turn = await oneTurn(client, events)
const abort = await abortedTurn(client, events)
const fork = await forks(client, turn.session.id, turn.userMessage)
const remove = await deletion(client, turn.session.id)
closing.abort()
await listening
console.log(JSON.stringify({ turn, abort, fork, remove }))
