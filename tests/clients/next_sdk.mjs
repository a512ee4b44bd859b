// next_sdk.mjs BASE_URL PYTHON [LLM_URL]: call every method of the newest SDK once or more, and print what each answered, as JSON:
// {methods, answers: [{method, status, data | error}], stopped: {scenario: message}}
// With LLM_URL the server's model is scripted there before each prompt; without, the scripted provider reads the words.
import { createOpencodeClient } from "opencode-sdk-next/v2"
import { Events } from "./sdk_events.mjs"
import { methodsOf, recording } from "./sdk_surfaces.mjs"

const [baseUrl, python, llm] = process.argv.slice(2)
const answers = []
const sdk = createOpencodeClient({ baseUrl })
const client = /** @type {typeof sdk} */ (recording(sdk, (answer) => answers.push(answer)))
const events = new Events()
const events2 = new Events()
const wide = new Events()

const model = llm ? { providerID: "fake", modelID: "main" } : { providerID: "scripted", modelID: "rules" }
const model2 = { id: model.modelID, providerID: model.providerID }
const SCRIPTS = {
  "long 8": [[{ text: "Some words." }]],
  "run echo hi": [[{ tool: "bash", args: { command: "echo hi", description: "greets" } }], [{ text: "done" }]],
  "ask Which?: A, B": [
    [{ tool: "question", args: { questions: [{ question: "Which?", header: "Choice", options: [{ label: "A", description: "a" }, { label: "B", description: "b" }] }] } }],
    [{ text: "done" }],
  ],
  "think": [[{ reasoning: "Let me see." }, { text: "Thought." }]],
  "todo one, two": [
    [{ tool: "todowrite", args: { todos: [{ content: "one", status: "pending", priority: "high", id: "1" }, { content: "two", status: "pending", priority: "low", id: "2" }] } }],
    [{ text: "done" }],
  ],
}

/** What to prompt to have the model do this. @param {keyof typeof SCRIPTS} words */
async function say(words) {
  if (llm) await fetch(`${llm}/script`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ turns: SCRIPTS[words] }) })
  return [{ type: /** @type {const} */ ("text"), text: words }]
}

const later = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** The data of an answer; what has none ends the scenario. @template T @param {Promise<{ data?: T, error?: unknown }>} call @returns {Promise<NonNullable<T>>} */
async function ok(call) {
  const { data, error } = await call
  if (data === undefined || data === null) throw new Error(`no data: ${JSON.stringify(error)}`)
  return data
}

/** As soon as one is there, or nothing after a while. @template T @param {() => Promise<{ data?: T[] | { data: T[] } }>} list @returns {Promise<T>} */
async function firstOf(list) {
  for (let n = 0; n < 200; n++) {
    const { data } = await list()
    const found = Array.isArray(data) ? data : data?.data
    if (found?.length) return found[0]
    await later(50)
  }
  throw new Error(`nothing came of ${list}`)
}

const newSession = async (title) => (await ok(client.session.create({ title, agent: "build", model: model2, metadata: { from: "sdk" } }))).id

/** When nothing runs in a session any more. @param {string} sessionID */
async function untilIdle(sessionID) {
  for (let n = 0; n < 300; n++) {
    const { data } = await client.session.status()
    if ((data?.[sessionID]?.type ?? "idle") === "idle") return
    await later(50)
  }
  throw new Error(`${sessionID} is still busy`)
}

/** @param {keyof typeof SCRIPTS} words */
async function prompt(sessionID, words) {
  const answer = await ok(client.session.prompt({ sessionID, parts: await say(words) }))
  await untilIdle(sessionID)
  return answer
}

async function idle(sessionID, begin) {
  const result = await begin()
  if (llm) await later(500) // OpenCode answers before the turn has begun
  await untilIdle(sessionID)
  return result
}

const scenarios = {
  async server_and_configuration() {
    await client.global.health()
    await client.global.config.get()
    await client.global.config.update({ config: { username: "sdk" } })
    await client.config.get()
    await client.config.update({ config: { username: "sdk" } })
    await client.config.providers()
    await client.path.get()
    await client.app.agents()
    await client.app.skills()
    await client.app.log({ service: "sdk", level: "info", message: "hello", extra: { a: 1 } })
    await client.command.list()
    await client.lsp.status()
    await client.formatter.status()
    await client.tool.ids()
    await client.tool.list({ provider: model.providerID, model: model.modelID })
    await client.provider.list()
    await client.provider.auth()
    await client.provider.oauth.authorize({ providerID: "anthropic", method: 0 })
    await client.provider.oauth.callback({ providerID: "anthropic", method: 0, code: "c" })
    await client.auth.set({ providerID: "elsewhere", auth: { type: "api", key: "secret-0123456789", metadata: { label: "mine" } } })
    await client.auth.remove({ providerID: "elsewhere" })
    await client.experimental.capabilities.get()
    await client.experimental.resource.list()
    await client.experimental.console.get()
    await client.experimental.console.listOrgs()
    await client.experimental.console.switchOrg({ accountID: "a", orgID: "b" })
    await client.experimental.workspace.list()
    await client.experimental.workspace.status()
    await client.experimental.workspace.syncList()
    await client.experimental.workspace.adapter.list()
    await client.experimental.workspace.create({ type: "none" })
    await client.experimental.workspace.remove({ id: "wrk_none" })
    await client.experimental.workspace.warp({ id: null, sessionID: "ses_none" })
    await client.global.upgrade({ target: "0.0.0" })
  },

  async projects_files_and_versions() {
    await client.project.list()
    const project = await ok(client.project.current())
    await client.project.update({ projectID: project.id, name: "Renamed", icon: { color: "pink" }, commands: { start: "make" } })
    await client.project.directories({ projectID: project.id })
    await client.project.initGit()
    await client.experimental.projectCopy.generateName({ projectID: project.id })
    await client.v2.projectCopy.create({ projectID: project.id, strategy: "none", directory: "/none", name: "copy" })
    await client.v2.projectCopy.refresh({ projectID: project.id })
    await client.v2.projectCopy.remove({ projectID: project.id, directory: "/none" })
    await client.file.list({ path: "." })
    await client.file.read({ path: "a.txt" })
    await client.file.status()
    await client.find.text({ pattern: "world" })
    await client.find.files({ query: "atxt" })
    await client.find.symbols({ query: "anything" })
    await client.vcs.get()
    await client.vcs.status()
    await client.vcs.diff({ mode: "git" })
    await client.vcs.diff({ mode: "branch" })
    await client.vcs.diff2.raw()
    await client.vcs.apply({ patch: "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-hello\n+hallo\n world\n" })
    const { directory } = await ok(client.worktree.create({ worktreeCreateInput: { name: "feature" } }))
    await client.worktree.list()
    for (let n = 0; n < 100 && (await client.worktree.reset({ worktreeResetInput: { directory } })).error; n++) await later(100)
    await client.worktree.remove({ worktreeRemoveInput: { directory } })
  },

  async a_session() {
    const sessionID = await newSession("sdk")
    const [child] = [await ok(client.session.create({ parentID: sessionID, title: "child" }))]
    await client.session.list({ roots: true })
    await client.session.get({ sessionID })
    await client.session.children({ sessionID })
    await client.session.update({ sessionID, title: "renamed", metadata: { a: 1 }, permission: [{ permission: "edit", pattern: "*", action: "allow" }] })
    await client.session.status()
    await client.session.share({ sessionID })
    await client.session.unshare({ sessionID })
    await client.experimental.session.list({ roots: true })
    await client.experimental.session.background({ sessionID })
    await client.session.delete({ sessionID: child.id })
  },

  async turns() {
    const sessionID = await newSession("turns")
    await prompt(sessionID, "long 8")
    await prompt(sessionID, "think")
    await prompt(sessionID, "todo one, two")
    await client.session.todo({ sessionID })
    await client.session.diff({ sessionID })
    const messages = await ok(client.session.messages({ sessionID }))
    const [user, assistant] = messages
    await client.session.message({ sessionID, messageID: assistant.info.id })
    const part = assistant.parts.find(({ type }) => type === "text")
    if (part?.type === "text") {
      await client.part.update({ sessionID, messageID: part.messageID, partID: part.id, part: { ...part, text: "by hand" } })
      await client.part.delete({ sessionID, messageID: part.messageID, partID: part.id })
    }
    await client.session.fork({ sessionID, messageID: assistant.info.id })
    await client.session.revert({ sessionID, messageID: user.info.id })
    await client.session.unrevert({ sessionID })
    await client.session.deleteMessage({ sessionID, messageID: assistant.info.id })
    await idle(sessionID, async () => client.session.promptAsync({ sessionID, parts: await say("long 8") }))
    await say("long 8")
    await idle(sessionID, () => client.session.command({ sessionID, command: "greet", arguments: "" }))
    await idle(sessionID, () => client.session.shell({ sessionID, agent: "build", model, command: "echo hi" }))
    await say("long 8")
    await idle(sessionID, () => client.session.summarize({ sessionID, ...model }))
    const other = await newSession("init")
    await say("long 8")
    await idle(other, () => client.session.init({ sessionID: other, ...model, messageID: "msg_00000000000000000000000000" }))
    await client.session.abort({ sessionID })
  },

  async permissions_and_questions() {
    for (const answer of ["respond", "reply"]) {
      const sessionID = await newSession(answer)
      await idle(sessionID, async () => {
        await client.session.promptAsync({ sessionID, parts: await say("run echo hi") })
        const { id } = await firstOf(() => client.permission.list())
        if (answer === "reply") return client.permission.reply({ requestID: id, reply: "once" })
        return client.permission.respond({ sessionID, permissionID: id, response: "once" })
      })
    }
    for (const answer of ["reply", "reject"]) {
      const sessionID = await newSession(answer)
      await idle(sessionID, async () => {
        await client.session.promptAsync({ sessionID, parts: await say("ask Which?: A, B") })
        const { id } = await firstOf(() => client.question.list())
        return answer === "reply" ? client.question.reply({ requestID: id, answers: [["A"]] }) : client.question.reject({ requestID: id })
      })
    }
  },

  async mcp() {
    await client.mcp.add({ name: "clock", config: { type: "local", command: [python, "-m", "mcp_server_time"] } })
    await client.mcp.status()
    await client.mcp.disconnect({ name: "clock" })
    await client.mcp.connect({ name: "clock" })
    await client.mcp.auth.start({ name: "clock" })
    await client.mcp.auth.authenticate({ name: "clock" })
    await client.mcp.auth.callback({ name: "clock", code: "c" })
    await client.mcp.auth.remove({ name: "clock" })
  },

  async terminals() {
    await client.pty.shells()
    const { id: ptyID } = await ok(client.pty.create({ command: "/bin/sh", title: "sdk", env: { A: "1" } }))
    await client.pty.list()
    await client.pty.get({ ptyID })
    await client.pty.update({ ptyID, title: "renamed", size: { rows: 20, cols: 70 } })
    await client.pty.connectToken({ ptyID })
    await client.pty.connect({ ptyID })
    await client.pty.remove({ ptyID })
    const { data: second } = await ok(client.v2.pty.create({ command: "/bin/sh", title: "sdk" }))
    await client.v2.pty.list()
    await client.v2.pty.get({ ptyID: second.id })
    await client.v2.pty.update({ ptyID: second.id, title: "renamed" })
    await client.v2.pty.connectToken({ ptyID: second.id })
    await client.v2.pty.connect({ ptyID: second.id })
    await client.v2.pty.remove({ ptyID: second.id })
  },

  async steering() {
    const sessionID = await newSession("steered")
    await client.tui.appendPrompt({ text: "hello" })
    await client.tui.openHelp()
    await client.tui.openSessions()
    await client.tui.openThemes()
    await client.tui.openModels()
    await client.tui.submitPrompt()
    await client.tui.clearPrompt()
    await client.tui.executeCommand({ command: "session_new" })
    await client.tui.showToast({ title: "t", message: "m", variant: "info", duration: 100 })
    await client.tui.publish({ body: { type: "tui.prompt.append", properties: { text: "x" } } })
    await client.tui.selectSession({ sessionID })
    const giveUp = new AbortController()
    const next = client.tui.control.next({}, { signal: giveUp.signal }).catch(() => {})
    for (let n = 0, came = false; n < 50 && !came; n++) {
      await client.tui.appendPrompt({ text: "again" })
      came = await Promise.race([next.then(() => true), later(100).then(() => false)])
    }
    giveUp.abort()
    await next
    await client.tui.control.response({ body: true })
  },

  async second_api_of_a_place() {
    await client.v2.health.get()
    await client.v2.location.get()
    await client.v2.agent.list()
    await client.v2.command.list()
    await client.v2.skill.list()
    await client.v2.reference.list()
    await client.v2.model.list()
    await client.v2.provider.list()
    await client.v2.provider.get({ providerID: model.providerID })
    await client.v2.integration.list()
    await client.v2.integration.get({ integrationID: llm ? "opencode" : "anthropic" })
    await client.v2.integration.connect.key({ integrationID: llm ? "opencode" : "anthropic", key: "secret-0123456789", label: "mine" })
    const { data: integrations } = await ok(client.v2.integration.list())
    const credential = integrations.flatMap(({ connections }) => connections).find(({ type }) => type === "credential")
    const credentialID = credential?.type === "credential" ? credential.id : "none"
    await client.v2.credential.update({ credentialID, label: "yours" })
    await client.v2.credential.remove({ credentialID })
    await client.v2.integration.connect.oauth({ integrationID: "anthropic", methodID: "m", inputs: {} })
    await client.v2.integration.attempt.status({ attemptID: "none" })
    await client.v2.integration.attempt.complete({ attemptID: "none", code: "c" })
    await client.v2.integration.attempt.cancel({ attemptID: "none" })
    await client.v2.fs.find({ query: "a" })
    await client.v2.fs.list({ path: "." })
    await client.v2.fs.read()
    await client.v2.permission.saved.list()
    await client.v2.permission.saved.remove({ id: "psv_none" })
  },

  async second_api_sessions() {
    const { data: session } = await ok(client.v2.session.create({ agent: "build", model: model2 }))
    const sessionID = session.id
    await client.v2.session.list({ limit: 10 })
    await client.v2.session.get({ sessionID })
    await client.v2.session.active()
    await client.v2.session.switchAgent({ sessionID, agent: "plan" })
    await client.v2.session.switchAgent({ sessionID, agent: "build" })
    await client.v2.session.switchModel({ sessionID, model: model2 })
    await say("long 8")
    await ok(client.v2.session.prompt({ sessionID, prompt: { text: "long 8" } }))
    await client.v2.session.wait({ sessionID })
    for (let n = 0; n < 200 && (await ok(client.v2.session.messages({ sessionID }))).data.length < 2; n++) await later(50)
    await later(500)
    const { data: messages } = await ok(client.v2.session.messages({ sessionID, order: "asc" }))
    const user = messages.find(({ type }) => type === "user")
    await client.v2.session.message({ sessionID, messageID: user?.id ?? "msg_none" })
    await client.v2.session.context({ sessionID })
    await client.v2.session.history({ sessionID })
    const listening = new AbortController()
    const { stream } = await client.v2.session.events({ sessionID }, { signal: listening.signal })
    await (await stream[Symbol.asyncIterator]()).next()
    listening.abort()
    await client.v2.session.revert.stage({ sessionID, messageID: user?.id ?? "msg_none" })
    await client.v2.session.revert.clear({ sessionID })
    await client.v2.session.revert.stage({ sessionID, messageID: user?.id ?? "msg_none" })
    await client.v2.session.revert.commit({ sessionID })
    await say("long 8")
    await client.v2.session.compact({ sessionID })
    await client.v2.session.interrupt({ sessionID })
  },

  async second_api_requests() {
    const rules = [{ permission: "bash", pattern: "*", action: /** @type {const} */ ("ask") }]
    const sessionID = (await ok(client.session.create({ title: "asks", permission: rules }))).id
    const { data: created } = await ok(client.v2.session.permission.create({ sessionID, action: "bash", resources: ["ls -l"], save: [], metadata: { a: 1 }, source: { type: "tool", messageID: "msg_1", callID: "c" } }))
    await client.v2.permission.request.list()
    await client.v2.session.permission.list({ sessionID })
    await client.v2.session.permission.get({ sessionID, requestID: created.id })
    await client.v2.session.permission.reply({ sessionID, requestID: created.id, reply: "once" })
    await client.v2.question.request.list()
    await client.v2.session.question.list({ sessionID })
    for (const answer of ["reply", "reject"]) {
      await idle(sessionID, async () => {
        await client.session.promptAsync({ sessionID, parts: await say("ask Which?: A, B") })
        const { id: requestID } = await firstOf(() => (llm ? client.question.list() : client.v2.session.question.list({ sessionID })))
        if (llm) await client.question.reject({ requestID })
        if (answer === "reject") return client.v2.session.question.reject({ sessionID, requestID })
        return client.v2.session.question.reply({ sessionID, requestID, questionV2Reply: { answers: [["A"]] } })
      })
    }
  },

  async sync_and_moving() {
    const sessionID = await newSession("moving")
    const { directory } = await ok(client.path.get())
    await client.experimental.controlPlane.moveSession({ sessionID, destination: { directory } })
    await client.sync.start()
    await client.sync.replay({ body_directory: directory, events: [] })
    await client.sync.steal({ sessionID })
    await client.sync.history.list({ body: {} })
  },

  async everything_is_let_go_of() {
    await client.instance.dispose()
    await client.global.dispose()
  },
}

async function listening(subscribe, heard) {
  const closing = new AbortController()
  const { stream } = await subscribe({ signal: closing.signal })
  const ended = heard.listen(stream).catch(() => {})
  return async () => {
    closing.abort()
    await ended
  }
}

const stops = await Promise.all([
  listening((options) => client.event.subscribe({}, options), events),
  listening((options) => client.global.event(options), wide),
  listening((options) => client.v2.event.subscribe(options), events2),
])
const stopped = {}
for (const [name, scenario] of Object.entries(scenarios)) {
  await scenario().catch((error) => (stopped[name] = String(error.stack)))
}
await Promise.all(stops.map((stop) => stop()))
console.log(JSON.stringify({ methods: methodsOf(sdk), answers, stopped }))
