// every_method.mjs BASE_URL v1|v2 PYTHON: call every method of the official SDK, and print what each answered, as JSON:
// {methods: names, answers: [{method, status, data | error}], failures: {scenario: message}}
import assert from "node:assert/strict"
import { Events, isDelta, isIdle, isOf } from "./sdk_events.mjs"
import { methodsOf, open } from "./sdk_surfaces.mjs"

const [baseUrl, surface, python] = process.argv.slice(2)
const answers = []
const { sdk, client } = open(surface, baseUrl, (answer) => answers.push(answer))
const isV2 = surface === "v2"
const events = new Events()

const text = (/** @type {string} */ words) => [{ type: /** @type {const} */ ("text"), text: words }]
const model = { providerID: "scripted", modelID: "rules" }
const UNKNOWN = "ses_unknown"

/** The data of an answer, which must not be an error. @template T @param {Promise<{ data?: T, error?: unknown }>} call */
async function ok(call) {
  const { data, error } = await call
  assert.equal(error, undefined)
  assert.notEqual(data, undefined)
  return /** @type {T} */ (data)
}

/** The status of an answer that is an error. */
async function refused(call) {
  const { error, response } = await call
  assert.notEqual(error, undefined)
  return response.status
}

const newSession = async (title) => (await ok(client.session.create({ title }))).id

async function prompt(sessionID, words) {
  const before = events.seen.length
  const answer = await ok(client.session.prompt({ sessionID, parts: text(words) }))
  await events.first(isIdle(sessionID), before)
  return answer
}

/** A prompt that waits for a person: the event that asks. */
async function asks(sessionID, words, type) {
  await ok(client.session.promptAsync({ sessionID, parts: text(words) }))
  return (await events.first(isOf(type, sessionID))).properties
}

/** The state of the first call of a tool in a session. */
async function called(sessionID, tool) {
  const parts = (await ok(client.session.messages({ sessionID }))).flatMap((message) => message.parts)
  const part = parts.find((part) => part.type === "tool" && part.tool === tool)
  assert.ok(part?.type === "tool")
  return part.state
}

async function last(sessionID) {
  const message = (await ok(client.session.messages({ sessionID }))).at(-1)
  assert.ok(message)
  return message
}


const scenarios = {
  async places() {
    const paths = await ok(client.path.get())
    const project = await ok(client.project.current())
    assert.equal(project.worktree, paths.worktree)
    assert.ok((await ok(client.project.list())).some(({ id }) => id === project.id))
    assert.match((await ok(client.vcs.get())).branch, /^ma/)
    assert.deepEqual(await ok(client.lsp.status()), [])
    assert.ok((await ok(client.formatter.status())).some(({ name, enabled }) => name === "prettier" && enabled === false))
    if (!isV2) return
    const renamed = await ok(client.project.update({ projectID: project.id, name: "Renamed", icon: { color: "pink" }, commands: { start: "make" } }))
    assert.deepEqual([renamed.name, renamed.icon?.color, renamed.commands?.start], ["Renamed", "pink", "make"])
    assert.equal(await refused(client.project.update({ projectID: "unknown", name: "x" })), 404)
  },

  async worktrees() {
    if (!isV2) return
    const { name, branch, directory } = await ok(client.worktree.create({ worktreeCreateInput: { name: "of the SDK" } }))
    assert.deepEqual([name, branch], ["of-the-sdk", "opencode/of-the-sdk"])
    assert.deepEqual(await ok(client.worktree.list()), [directory])
    assert.equal((await ok(client.path.get({ directory }))).worktree, directory)
    assert.equal(await ok(client.worktree.reset({ worktreeResetInput: { directory } })), true)
    assert.equal(await ok(client.worktree.remove({ worktreeRemoveInput: { directory } })), true)
    assert.deepEqual(await ok(client.worktree.list()), [])
  },

  async agents_commands_and_tools() {
    assert.ok((await ok(client.app.agents())).some(({ name, mode }) => name === "build" && mode === "primary"))
    assert.ok((await ok(client.command.list())).some(({ name, template }) => name === "greet" && template === "long 3"))
    const ids = await ok(client.tool.ids())
    const tools = await ok(client.tool.list({ provider: "scripted", model: "rules" }))
    assert.ok(tools.some(({ id }) => id === "bash") && tools.every(({ id }) => ids.includes(id)))
    assert.equal(await ok(client.app.log({ service: "sdk", level: "info", message: "hello", extra: { a: 1 } })), true)
    if (isV2) assert.ok((await ok(client.app.skills())).some(({ name }) => name === "greeting"))
  },

  async configuration_and_providers() {
    await ok(client.config.update({ config: { username: "sdk" } }))
    assert.equal((await ok(client.config.get())).username, "sdk")
    const { providers, default: models } = await ok(client.config.providers())
    assert.deepEqual([providers.map(({ id }) => id), models.scripted], [["scripted"], "rules"])
    assert.equal(await ok(client.auth.set({ providerID: "elsewhere", auth: { type: "api", key: "secret" } })), true)
    assert.ok("anthropic" in (await ok(client.provider.auth())))
    assert.ok((await ok(client.provider.list())).all.some(({ id }) => id === "anthropic"))
    // @ts-expect-error: a number is no user's name
    assert.equal(await refused(client.config.update({ config: { username: 1 } })), 400)
  },

  async a_session_is_kept_renamed_shared_and_deleted() {
    const parentID = await newSession("parent")
    const child = await ok(client.session.create({ parentID, title: "child" }))
    assert.deepEqual((await ok(client.session.children({ sessionID: parentID }))).map(({ id }) => id), [child.id])
    assert.equal((await ok(client.session.update({ sessionID: parentID, title: "renamed" }))).title, "renamed")
    const { share } = await ok(client.session.share({ sessionID: parentID }))
    assert.ok((await fetch(share?.url ?? "")).ok)
    assert.deepEqual((await ok(client.session.get({ sessionID: parentID }))).share, share)
    assert.equal((await ok(client.session.unshare({ sessionID: parentID }))).share, undefined)
    assert.ok((await ok(client.session.list())).some(({ title }) => title === "renamed"))
    assert.equal(await ok(client.session.delete({ sessionID: parentID })), true)
    assert.equal(await refused(client.session.get({ sessionID: child.id })), 404)
  },

  async a_turn_is_read_forked_and_changed_by_hand() {
    const sessionID = await newSession("turn")
    const answer = await prompt(sessionID, "long 8")
    const [user, assistant] = await ok(client.session.messages({ sessionID }))
    assert.deepEqual([user.info.role, assistant.info.id], ["user", answer.info.id])
    assert.deepEqual(await ok(client.session.message({ sessionID, messageID: answer.info.id })), assistant)
    const part = assistant.parts.find(({ type }) => type === "text")
    assert.ok(part?.type === "text")
    assert.equal(events.deltas(sessionID).join("").trim(), part.text)
    const types = events.types(sessionID)
    assert.deepEqual([types[0], types.at(-1)], ["session.created", "session.idle"])
    const whole = await ok(client.session.fork({ sessionID }))
    const copied = await ok(client.session.messages({ sessionID: whole.id }))
    assert.deepEqual([whole.title, copied.map(({ parts }) => parts.length)], ["turn (fork #1)", [user, assistant].map(({ parts }) => parts.length)])
    const fork = await ok(client.session.fork({ sessionID, messageID: answer.info.id }))
    assert.equal((await ok(client.session.messages({ sessionID: fork.id }))).length, 1)
    if (!isV2) return
    const changed = await ok(client.part.update({ sessionID, messageID: part.messageID, partID: part.id, part: { ...part, text: "by hand" } }))
    assert.ok(changed.type === "text" && changed.text === "by hand")
    assert.equal(await ok(client.part.delete({ sessionID, messageID: part.messageID, partID: part.id })), true)
    assert.ok(!(await last(sessionID)).parts.some(({ id }) => id === part.id))
  },

  async files_are_reverted_and_brought_back() {
    const sessionID = await newSession("revert")
    await prompt(sessionID, "write made.txt: one")
    const [{ info: user }] = await ok(client.session.messages({ sessionID }))
    assert.deepEqual((await ok(client.session.diff({ sessionID }))).map(({ file }) => file), ["made.txt"])
    assert.equal((await ok(client.file.read({ path: "made.txt" }))).content, "one")
    assert.equal((await ok(client.file.status())).find(({ path }) => path === "made.txt")?.status, "added")
    assert.equal((await ok(client.session.revert({ sessionID, messageID: user.id }))).revert?.messageID, user.id)
    assert.ok(!(await ok(client.file.list({ path: "." }))).some(({ name }) => name === "made.txt"))
    assert.equal((await ok(client.session.unrevert({ sessionID }))).revert, undefined)
    assert.ok((await ok(client.file.list({ path: "." }))).some(({ name, type }) => name === "made.txt" && type === "file"))
  },

  async tools_todos_reasoning_and_a_failed_request_have_their_shapes() {
    const sessionID = await newSession("shapes")
    for (const words of ["think", "read a.txt", "read missing.txt", "list files", "todo one, two"]) await prompt(sessionID, words)
    assert.deepEqual((await ok(client.session.todo({ sessionID }))).map(({ content }) => content), ["one", "two"])
    const failed = await prompt(sessionID, "fail 400")
    assert.ok(failed.info.role === "assistant" && failed.info.error?.name === "APIError")
  },

  async files_and_agents_are_attached() {
    const sessionID = await newSession("attachments")
    const { directory } = await ok(client.path.get())
    const file = { type: /** @type {const} */ ("file"), mime: "text/plain", url: `file://${directory}/a.txt`, filename: "a.txt" }
    const image = { ...file, mime: "image/png", url: "data:image/png;base64,iVBORw0KGgo=", filename: "a.png" }
    const agent = { type: /** @type {const} */ ("agent"), name: "general" }
    await ok(client.session.prompt({ sessionID, model, agent: "build", noReply: true, parts: [...text("look"), file, image, agent] }))
    const types = new Set((await last(sessionID)).parts.map(({ type }) => /** @type {string} */ (type)))
    assert.ok(["text", "file", "agent"].every((type) => types.has(type)))
  },

  async a_command_a_shell_line_an_initialisation_and_a_summary() {
    const sessionID = await newSession("requests")
    const greeted = await ok(client.session.command({ sessionID, command: "greet", arguments: "" }))
    assert.ok(greeted.parts.some(({ type }) => type === "text"))
    await ok(client.session.shell({ sessionID, agent: "build", command: "echo from-the-shell" }))
    const state = await called(sessionID, "bash")
    assert.match(state.status === "completed" ? state.output : "", /from-the-shell/)
    assert.equal(await ok(client.session.summarize({ sessionID, ...model })), true)
    assert.ok((await ok(client.session.messages({ sessionID }))).some(({ parts }) => parts.some(({ type }) => type === "compaction")))
    const other = await newSession("initialisation")
    assert.equal(await ok(client.session.init({ sessionID: other, ...model, messageID: "msg_00000000000000000000000000" })), true)
  },

  async permissions_are_asked_for() {
    const sessionID = await newSession("permissions")
    const first = await asks(sessionID, "run echo allowed", "permission.asked")
    if (isV2) assert.deepEqual((await ok(client.permission.list())).map(({ id }) => id), [first.id])
    assert.equal(await ok(client.permission.respond({ sessionID, permissionID: first.id, response: "once" })), true)
    await events.first(isIdle(sessionID))
    assert.equal((await called(sessionID, "bash")).status, "completed")
    if (!isV2) return
    const refusing = await newSession("refused")
    const second = await asks(refusing, "run echo refused", "permission.asked")
    assert.equal(await ok(client.permission.reply({ requestID: second.id, reply: "reject", message: "no" })), true)
    await events.first(isIdle(refusing))
    assert.equal((await called(refusing, "bash")).status, "error")
    assert.equal(await refused(client.permission.reply({ requestID: "per_unknown", reply: "once" })), 404)
  },

  async questions_are_asked() {
    if (!isV2) return
    const sessionID = await newSession("questions")
    const first = await asks(sessionID, "ask Which colour?: Red, Blue", "question.asked")
    assert.deepEqual((await ok(client.question.list())).map(({ id }) => id), [first.id])
    assert.equal(await ok(client.question.reply({ requestID: first.id, answers: [["Red"]] })), true)
    await events.first(isIdle(sessionID))
    const other = await newSession("no answer")
    const second = await asks(other, "ask Which colour?: Red, Blue", "question.asked")
    assert.equal(await ok(client.question.reject({ requestID: second.id })), true)
    await events.first(isIdle(other))
    assert.equal((await called(other, "question")).status, "error")
    assert.equal(await refused(client.question.reject({ requestID: "que_unknown" })), 404)
  },

  async a_turn_is_aborted() {
    const sessionID = await newSession("abort")
    await ok(client.session.promptAsync({ sessionID, parts: text("help") }))
    await events.first((event) => isDelta(event, sessionID))
    assert.equal((await ok(client.session.status()))[sessionID].type, "busy")
    assert.equal(await ok(client.session.abort({ sessionID })), true)
    await events.first(isIdle(sessionID))
    const { info } = await last(sessionID)
    assert.equal(info.role === "assistant" && info.error?.name, "MessageAbortedError")
  },

  async text_files_and_symbols_are_found() {
    const [match] = await ok(client.find.text({ pattern: "^world$" }))
    assert.deepEqual([match.path.text, match.line_number, match.submatches[0].match.text], ["a.txt", 2, "world"])
    assert.equal((await ok(client.find.files({ query: "atxt" })))[0], "a.txt")
    assert.deepEqual(await ok(client.find.symbols({ query: "anything" })), [])
  },

  async mcp_servers_are_added_switched_and_signed_in_to() {
    const clock = { type: /** @type {const} */ ("local"), command: [python, "-m", "mcp_server_time"] }
    assert.equal((await ok(client.mcp.add({ name: "clock", config: clock }))).clock.status, "connected")
    assert.equal(await ok(client.mcp.disconnect({ name: "clock" })), true)
    assert.equal((await ok(client.mcp.status())).clock.status, "disabled")
    assert.equal(await ok(client.mcp.connect({ name: "clock" })), true)
    assert.equal((await ok(client.mcp.status())).clock.status, "connected")
    if (isV2) assert.deepEqual(await ok(client.experimental.resource.list()), {})
    const name = "clock"
    assert.equal(await refused(client.mcp.auth.start({ name })), 400)
    assert.equal(await refused(client.mcp.auth.authenticate({ name })), 400)
    assert.equal(await refused(client.mcp.auth.callback({ name, code: "c" })), 400)
    assert.ok((await client.mcp.auth.remove({ name })).response.status < 500)
  },

  async a_terminal_client_is_steered() {
    const { tui } = client
    const request = tui.control.next()
    for (const call of [tui.openHelp, tui.openSessions, tui.openThemes, tui.openModels, tui.submitPrompt, tui.clearPrompt]) {
      assert.equal(await ok(call()), true)
    }
    assert.equal(await ok(tui.executeCommand({ command: "agent_cycle" })), true)
    assert.equal(await ok(tui.showToast({ message: "Done.", variant: "success" })), true)
    assert.equal(await ok(tui.publish({ body: { type: "tui.prompt.append", properties: { text: "published" } } })), true)
    assert.equal(await ok(tui.appendPrompt({ text: "hello" })), true)
    assert.match((await ok(request)).path, /^\/tui\//)
    assert.equal(await ok(tui.control.response({ body: { done: true } })), true)
    await events.first(({ type, properties }) => type === "tui.prompt.append" && properties.text === "hello")
    await events.first(({ type, properties }) => type === "tui.command.execute" && properties.command === "agent.cycle")
    if (!isV2) return
    const sessionID = await newSession("selected")
    assert.equal(await ok(tui.selectSession({ sessionID })), true)
    await events.first(({ type, properties }) => type === "tui.session.select" && properties.sessionID === sessionID)
    assert.equal(await refused(tui.selectSession({ sessionID: UNKNOWN })), 404)
  },

  async terminals() {
    const { id: ptyID, ...made } = await ok(client.pty.create({ command: "sh", args: ["-c", "read word; exit 3"], title: "Mine" }))
    assert.deepEqual([made.title, made.status], ["Mine", "running"])
    assert.deepEqual((await ok(client.pty.list())).map(({ id }) => id), [ptyID])
    const size = { rows: 40, cols: 120 }
    assert.equal((await ok(client.pty.update({ ptyID, title: "Yours", size }))).title, "Yours")
    assert.equal((await ok(client.pty.get({ ptyID }))).title, "Yours")
    assert.equal(await refused(client.pty.connect({ ptyID })), 426)
    assert.equal(await ok(client.pty.remove({ ptyID })), true)
    assert.equal(await refused(client.pty.get({ ptyID })), 404)
  },

  async what_is_not_there_and_what_is_not_valid_is_told() {
    for (const call of [client.session.get, client.session.messages, client.session.todo, client.session.children]) {
      assert.equal(await refused(call({ sessionID: UNKNOWN })), 404)
    }
    assert.equal(await refused(client.session.prompt({ sessionID: UNKNOWN, parts: text("hello") })), 404)
    const sessionID = await newSession("errors")
    // @ts-expect-error: a list of parts
    assert.equal(await refused(client.session.prompt({ sessionID, parts: "hello" })), 400)
    assert.equal(await refused(client.session.message({ sessionID, messageID: "msg_unknown" })), 404)
  },

  async everything_is_let_go_of() {
    assert.equal(await ok(client.instance.dispose()), true)
    if (!isV2) return
    assert.equal((await ok(client.global.health())).healthy, true)
    assert.equal(await ok(client.global.dispose()), true)
  },
}

async function listening(subscribe, heard) {
  const closing = new AbortController()
  const { stream } = await subscribe({ signal: closing.signal })
  const ended = heard.listen(stream)
  return async () => {
    closing.abort()
    await ended
  }
}

const everywhere = new Events()
const stop = await listening((options) => client.event.subscribe({}, options), events)
const stopEverywhere = await listening((options) => client.global.event(options), everywhere)
const failures = {}
for (const [name, scenario] of Object.entries(scenarios)) {
  await scenario().catch((error) => (failures[name] = String(error.stack)))
}
await everywhere.first(({ payload }) => payload.type === "server.instance.disposed")
await stop()
await stopEverywhere()
console.log(JSON.stringify({ methods: methodsOf(sdk), answers, scenarios: Object.keys(scenarios), failures }))
