// The official SDK has two surfaces for the same routes: v1 takes {path, query, body}, v2 flat parameters.
import { createOpencodeClient as createV1 } from "@opencode-ai/sdk"
import { createOpencodeClient as createV2 } from "@opencode-ai/sdk/v2"

/** @typedef {{ method: string, status: number, data?: unknown, error?: unknown }} Answer What a method of the SDK answered. */
/** @typedef {ReturnType<typeof createV2>} Client */

/**
 * One of the SDK's clients, and the same to be called as v2 is. What v1 has no method for is not there.
 *
 * @param {string} surface
 * @param {string} baseUrl
 * @param {(answer: Answer) => void} [record]
 */
export function open(surface, baseUrl, record = () => {}) {
  if (surface === "v1") {
    const sdk = createV1({ baseUrl })
    return { sdk, client: /** @type {Client} */ (/** @type {unknown} */ (likeV2(recording(sdk, record)))) }
  }
  const sdk = createV2({ baseUrl })
  return { sdk, client: /** @type {Client} */ (recording(sdk, record)) }
}

/** The names of all methods of a client, such as `session.list`. @returns {string[]} */
export function methodsOf(resource, prefix = "") {
  return namesIn(resource).flatMap((name) => {
    if (typeof resource[name] === "function") return [prefix + name]
    return isResource(resource[name]) ? methodsOf(resource[name], `${prefix}${name}.`) : []
  })
}

function namesIn(resource) {
  const own = []
  for (let level = resource; level !== Object.prototype; level = Object.getPrototypeOf(level)) {
    own.push(...Object.getOwnPropertyNames(level))
  }
  return [...new Set(own)].filter((name) => name !== "constructor" && name !== "client" && !name.startsWith("_"))
}

const isResource = (value) => typeof value === "object" && value !== null && ("client" in value || "_client" in value)

/**
 * The same client, each answer recorded with its method.
 *
 * @param {any} resource
 * @param {(answer: Answer) => void} record
 * @returns {any}
 */
export function recording(resource, record, prefix = "") {
  return new Proxy(resource, {
    get(target, name) {
      const value = target[name]
      const path = prefix + String(name)
      if (typeof value === "function") return recordingCall(value.bind(target), record, path)
      return isResource(value) ? recording(value, record, `${path}.`) : value
    },
  })
}

const recordingCall = (call, record, method) => async (...args) => {
  const result = await call(...args)
  if (result.stream) return { ...result, stream: recordingStream(result.stream, record, method) }
  record({ method, status: result.response.status, data: result.data, error: result.error })
  return result
}

async function* recordingStream(stream, record, method) {
  for await (const data of stream) {
    record({ method, status: 200, data })
    yield data
  }
}

/** @param {ReturnType<typeof createV1>} sdk */
function likeV2(sdk) {
  const named = ({ name }) => ({ path: { name } })
  const inPty = ({ ptyID }) => ({ path: { id: ptyID } })
  const at = ({ sessionID }) => ({ path: { id: sessionID } })
  /** @type {(parameters: any) => { path: { id: string }, body: any }} */
  const atWith = ({ sessionID, ...body }) => ({ path: { id: sessionID }, body })
  return {
    global: sdk.global,
    event: { subscribe: (_, options) => sdk.event.subscribe(options) },
    instance: sdk.instance,
    path: sdk.path,
    vcs: sdk.vcs,
    project: sdk.project,
    lsp: sdk.lsp,
    formatter: sdk.formatter,
    command: sdk.command,
    app: { agents: () => sdk.app.agents(), log: (body) => sdk.app.log({ body }) },
    config: { get: () => sdk.config.get(), providers: () => sdk.config.providers(), update: ({ config }) => sdk.config.update({ body: config }) },
    tool: { ids: () => sdk.tool.ids(), list: (query) => sdk.tool.list({ query }) },
    auth: { set: ({ providerID, auth }) => sdk.auth.set({ path: { id: providerID }, body: auth }) },
    provider: { list: () => sdk.provider.list(), auth: () => sdk.provider.auth() },
    find: {
      text: (query) => sdk.find.text({ query }),
      files: (query) => sdk.find.files({ query }),
      symbols: (query) => sdk.find.symbols({ query }),
    },
    file: { list: (query) => sdk.file.list({ query }), read: (query) => sdk.file.read({ query }), status: () => sdk.file.status() },
    pty: {
      list: () => sdk.pty.list(),
      create: (body) => sdk.pty.create({ body }),
      get: (at) => sdk.pty.get(inPty(at)),
      update: ({ ptyID, ...body }) => sdk.pty.update({ ...inPty({ ptyID }), body }),
      remove: (at) => sdk.pty.remove(inPty(at)),
      connect: (at) => sdk.pty.connect(inPty(at)),
    },
    permission: {
      respond: ({ sessionID, permissionID, response }) =>
        sdk.postSessionIdPermissionsPermissionId({ path: { id: sessionID, permissionID }, body: { response } }),
    },
    tui: {
      ...Object.fromEntries(
        ["openHelp", "openSessions", "openThemes", "openModels", "submitPrompt", "clearPrompt"].map((name) => [name, () => sdk.tui[name]()]),
      ),
      appendPrompt: (body) => sdk.tui.appendPrompt({ body }),
      executeCommand: (body) => sdk.tui.executeCommand({ body }),
      showToast: (body) => sdk.tui.showToast({ body }),
      publish: (parameters) => sdk.tui.publish(parameters),
      control: { next: () => sdk.tui.control.next(), response: (parameters) => sdk.tui.control.response(parameters) },
    },
    mcp: {
      status: () => sdk.mcp.status(),
      add: (body) => sdk.mcp.add({ body }),
      connect: (parameters) => sdk.mcp.connect(named(parameters)),
      disconnect: (parameters) => sdk.mcp.disconnect(named(parameters)),
      auth: {
        start: (parameters) => sdk.mcp.auth.start(named(parameters)),
        callback: ({ name, code }) => sdk.mcp.auth.callback({ path: { name }, body: { code } }),
        authenticate: (parameters) => sdk.mcp.auth.authenticate(named(parameters)),
        remove: (parameters) => sdk.mcp.auth.remove(named(parameters)),
      },
    },
    session: {
      list: () => sdk.session.list(),
      status: () => sdk.session.status(),
      create: (body) => sdk.session.create({ body }),
      get: (parameters) => sdk.session.get(at(parameters)),
      update: (parameters) => sdk.session.update(atWith(parameters)),
      delete: (parameters) => sdk.session.delete(at(parameters)),
      children: (parameters) => sdk.session.children(at(parameters)),
      todo: (parameters) => sdk.session.todo(at(parameters)),
      init: (parameters) => sdk.session.init(atWith(parameters)),
      fork: (parameters) => sdk.session.fork(atWith(parameters)),
      abort: (parameters) => sdk.session.abort(at(parameters)),
      share: (parameters) => sdk.session.share(at(parameters)),
      unshare: (parameters) => sdk.session.unshare(at(parameters)),
      diff: ({ sessionID, messageID }) => sdk.session.diff({ path: { id: sessionID }, query: { messageID } }),
      summarize: (parameters) => sdk.session.summarize(atWith(parameters)),
      messages: (parameters) => sdk.session.messages(at(parameters)),
      message: ({ sessionID, messageID }) => sdk.session.message({ path: { id: sessionID, messageID } }),
      prompt: (parameters) => sdk.session.prompt(atWith(parameters)),
      promptAsync: (parameters) => sdk.session.promptAsync(atWith(parameters)),
      command: (parameters) => sdk.session.command(atWith(parameters)),
      shell: (parameters) => sdk.session.shell(atWith(parameters)),
      revert: (parameters) => sdk.session.revert(atWith(parameters)),
      unrevert: (parameters) => sdk.session.unrevert(at(parameters)),
    },
  }
}
