"""The API's values, generated from openapi.yaml by `make openapi`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from opensession_client.wire import Wire


class APIError(Wire):
    name: Literal["APIError"] = "APIError"
    data: ApiErrorData


class Agent(Wire):
    name: str
    description: str | None = None
    mode: Literal["subagent", "primary", "all"]
    native: bool | None = None
    hidden: bool | None = None
    top_p: Annotated[float | None, Field(alias="topP")] = None
    temperature: float | None = None
    color: str | None = None
    permission: list[Rule]
    model: ModelRef | None = None
    variant: str | None = None
    prompt: str | None = None
    options: dict[str, Any]
    steps: int | None = None


class AgentConfig(Wire):
    """Keys that are not listed here are the model's: they become `options`."""

    name: str | None = None
    model: str | None = None
    variant: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    prompt: str | None = None
    tools: dict[str, bool] | None = None
    disable: bool | None = None
    description: str | None = None
    mode: Literal["subagent", "primary", "all"] | None = None
    hidden: bool | None = None
    options: dict[str, Any] | None = None
    color: str | Literal["primary", "secondary", "accent", "success", "warning", "error", "info"] | None = None
    steps: int | None = None
    max_steps: Annotated[int | None, Field(alias="maxSteps")] = None
    permission: PermissionConfig | None = None


class AgentPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["agent"] = "agent"
    name: str
    source: SourceText | None = None


class AgentPartInput(Wire):
    id: str | None = None
    type: Literal["agent"] = "agent"
    name: str
    source: SourceText | None = None


class AnswerInput(Wire):
    answers: list[list[str]]


class ApiAuth(Wire):
    """`metadata` is kept with the key. The second API shows its `label`."""

    type: Literal["api"] = "api"
    key: str
    metadata: dict[str, str] | None = None


class ApiErrorData(Wire):
    message: str
    status_code: Annotated[int | None, Field(alias="statusCode")] = None
    is_retryable: Annotated[bool, Field(alias="isRetryable")]
    response_headers: Annotated[dict[str, str] | None, Field(alias="responseHeaders")] = None
    response_body: Annotated[str | None, Field(alias="responseBody")] = None
    metadata: dict[str, str] | None = None


class AssistantMessage(Wire):
    """`tokens` are the last step's, `cost` is the sum over steps, in dollars."""

    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    role: Literal["assistant"] = "assistant"
    time: AssistantTime
    error: MessageError | None = None
    parent_id: Annotated[str, Field(alias="parentID")]
    model_id: Annotated[str, Field(alias="modelID")]
    provider_id: Annotated[str, Field(alias="providerID")]
    mode: str
    agent: str
    path: MessagePath
    summary: bool | None = None
    variant: str | None = None
    cost: float
    tokens: Tokens
    structured: Any = None
    """The answer, where the prompt's `format` asked for one by a JSON schema"""
    finish: str | None = None


class AssistantTime(Wire):
    created: int
    completed: int | None = None


class AttachmentConfig(Wire):
    image: ImageAttachmentConfig | None = None


class BadRequestData(Wire):
    """`kind`: the part of the request that is wrong."""

    message: str
    kind: Literal["Query", "Params", "Headers", "Payload"] | None = None
    received: Any = None


class BadRequestError(Wire):
    """OpenCode 1.1's clients read `errors` or `error`, which are the same list; those of 1.18 read `data`."""

    name: Literal["BadRequest"] = "BadRequest"
    data: BadRequestData
    errors: list[dict[str, Any]]
    success: Literal[False] = False


class BranchName(Wire):
    branch: str | None = None


class Busy(Wire):
    type: Literal["busy"] = "busy"


class CachePrice(Wire):
    read: float
    write: float


class CacheTokens(Wire):
    read: int
    write: int


class CallRef(Wire):
    """The tool call that a permission or a question was asked for."""

    message_id: Annotated[str, Field(alias="messageID")]
    call_id: Annotated[str, Field(alias="callID")]


class Capabilities(Wire):
    temperature: bool
    reasoning: bool
    attachment: bool
    toolcall: bool
    input: Modalities
    output: Modalities
    interleaved: bool | InterleavedField


class ChangedFile(Wire):
    """Against HEAD. Counts are lines, 0 for a binary file; `path` is relative to the directory that the request works in."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]


class Command(Wire):
    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mcp: bool | None = None
    source: Literal["command", "mcp"]
    template: str
    subtask: bool | None = None
    hints: list[str]


class CommandConfig(Wire):
    template: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    subtask: bool | None = None


class CommandExecute(Wire):
    type: Literal["tui.command.execute"] = "tui.command.execute"
    properties: TerminalCommandName


class CommandInput(Wire):
    command: str
    arguments: str
    message_id: Annotated[str | None, Field(alias="messageID")] = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    parts: list[FilePartInput] | None = None


class CommandRun(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    name: str
    arguments: str
    message_id: Annotated[str, Field(alias="messageID")]


class CommandToExecute(Wire):
    """A command by its name, or its old name (`agent_cycle`)."""

    command: str


class CommittedRevert(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    timestamp: int
    message_id: Annotated[str, Field(alias="messageID")]


class CompactionConfig(Wire):
    """`reserved`: tokens of the window that a request leaves free."""

    auto: bool | None = None
    prune: bool | None = None
    tail_turns: int | None = None
    preserve_recent_tokens: int | None = None
    reserved: int | None = None


class CompactionPart(Wire):
    """`overflow` and `tail_start_id` are what clients of OpenCode 1.18 send: kept and shown."""

    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["compaction"] = "compaction"
    auto: bool
    overflow: bool | None = None
    tail_start_id: str | None = None


class Completed(Wire):
    status: Literal["completed"] = "completed"
    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: CompletedTime
    attachments: list[FilePart] | None = None


class CompletedTime(Wire):
    start: int
    end: int
    compacted: int | None = None


class Config(Wire):
    schema_: Annotated[str | None, Field(alias="$schema")] = None
    theme: str | None = None
    keybinds: KeybindsConfig | None = None
    shell: str | None = None
    log_level: Annotated[LogLevel | None, Field(alias="logLevel")] = None
    tui: TuiConfig | None = None
    server: ServerConfig | None = None
    command: dict[str, CommandConfig] | None = None
    skills: SkillsConfig | None = None
    references: dict[str, str | GitReferenceConfig | LocalReferenceConfig] | None = None
    reference: dict[str, str | GitReferenceConfig | LocalReferenceConfig] | None = None
    watcher: WatcherConfig | None = None
    plugin: list[str] | None = None
    snapshot: bool | None = None
    share: Literal["manual", "auto", "disabled"] | None = None
    autoshare: bool | None = None
    autoupdate: bool | Literal["notify"] | None = None
    disabled_providers: list[str] | None = None
    enabled_providers: list[str] | None = None
    model: str | None = None
    small_model: str | None = None
    default_agent: str | None = None
    subagent_depth: int | None = None
    username: str | None = None
    mode: dict[str, AgentConfig] | None = None
    agent: dict[str, AgentConfig] | None = None
    provider: dict[str, ProviderConfig] | None = None
    mcp: dict[str, McpLocalConfig | McpRemoteConfig | McpEnabledConfig] | None = None
    formatter: bool | dict[str, FormatterConfig] | None = None
    lsp: bool | dict[str, LspConfig] | None = None
    instructions: list[str] | None = None
    layout: LayoutConfig | None = None
    permission: PermissionConfig | None = None
    tools: dict[str, bool] | None = None
    attachment: AttachmentConfig | None = None
    enterprise: EnterpriseConfig | None = None
    tool_output: ToolOutputConfig | None = None
    compaction: CompactionConfig | None = None
    sandbox: SandboxConfig | None = None
    experimental: ExperimentalConfig | None = None


class ConnectedProviders(Wire):
    """`default` is the model that a client preselects, by provider."""

    providers: list[ProviderInfo]
    default: dict[str, str]


class ConsoleOrganisation(Wire):
    account_id: Annotated[str, Field(alias="accountID")]
    account_email: Annotated[str, Field(alias="accountEmail")]
    account_url: Annotated[str, Field(alias="accountUrl")]
    org_id: Annotated[str, Field(alias="orgID")]
    org_name: Annotated[str, Field(alias="orgName")]
    active: bool


class ConsoleOrganisations(Wire):
    orgs: list[ConsoleOrganisation]


class ConsoleState(Wire):
    console_managed_providers: Annotated[list[str], Field(alias="consoleManagedProviders")]
    active_org_name: Annotated[str | None, Field(alias="activeOrgName")] = None
    switchable_org_count: Annotated[int, Field(alias="switchableOrgCount")]


class ConsoleSwitch(Wire):
    account_id: Annotated[str, Field(alias="accountID")]
    org_id: Annotated[str, Field(alias="orgID")]


class ContextOverflowData(Wire):
    message: str
    response_body: Annotated[str | None, Field(alias="responseBody")] = None


class ContextOverflowError(Wire):
    """The conversation is longer than the model takes, and compacting it did not help or is switched off."""

    name: Literal["ContextOverflowError"] = "ContextOverflowError"
    data: ContextOverflowData


class ControlRequest(Wire):
    path: str
    body: Any


class CopyName(Wire):
    name: str


class CopyNameInput(Wire):
    context: str | None = None


class CostTier(Wire):
    """A prompt of more than `size` tokens, cached ones included, has the price of the `PriceTier` for all of them."""

    type: Literal["context"] = "context"
    size: int


class CreateInput(Wire):
    parent_id: Annotated[str | None, Field(alias="parentID")] = None
    title: str | None = None
    agent: str | None = None
    model: SessionModel | None = None
    metadata: dict[str, Any] | None = None
    permission: list[Rule] | None = None
    workspace_id: Annotated[str | None, Field(alias="workspaceID")] = None
    """Refused: there are none here"""


class CreatedWorktree(Wire):
    name: str
    branch: str
    directory: str


class DiagnosedFile(Wire):
    server_id: Annotated[str, Field(alias="serverID")]
    path: str


class DiffOfSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    diff: list[FileDiff]


class EditorFile(Wire):
    """A question to an editor: the text that it shows of this file, which may be unsaved."""

    id: str
    path: str


class EditorFileText(Wire):
    """`text`: the whole file's; None if the editor cannot tell."""

    id: str
    text: str | None = None


class EmptyData(Wire):
    pass


class Ended(Wire):
    start: int
    end: int


class EnterpriseConfig(Wire):
    url: str | None = None


class ErrorData(Wire):
    message: str


class ErrorOfSession(Wire):
    session_id: Annotated[str | None, Field(alias="sessionID")] = None
    error: MessageError | None = None


class EventCommandExecuted(Wire):
    """A command was run; its message is stored."""

    id: str
    type: Literal["command.executed"] = "command.executed"
    properties: CommandRun


class EventFileEdited(Wire):
    """A tool has written a file."""

    id: str
    type: Literal["file.edited"] = "file.edited"
    properties: FileRef


class EventGlobalDisposed(Wire):
    """All directories were closed, by `POST /global/dispose`."""

    id: str
    type: Literal["global.disposed"] = "global.disposed"
    properties: Nothing


class EventLspClientDiagnostics(Wire):
    """A language server has published the errors of a file, perhaps none."""

    id: str
    type: Literal["lsp.client.diagnostics"] = "lsp.client.diagnostics"
    properties: DiagnosedFile


class EventLspUpdated(Wire):
    """A language server is ready, or is not any more."""

    id: str
    type: Literal["lsp.updated"] = "lsp.updated"
    properties: Nothing


class EventMcpBrowserOpenFailed(Wire):
    """The user is to open this page to sign in to an MCP server: this server opens no browser."""

    id: str
    type: Literal["mcp.browser.open.failed"] = "mcp.browser.open.failed"
    properties: McpPage


class EventMcpToolsChanged(Wire):
    """The tools of an MCP server have changed: it was connected, was closed, or says so."""

    id: str
    type: Literal["mcp.tools.changed"] = "mcp.tools.changed"
    properties: McpServerRef


class EventMessagePartDelta(Wire):
    """The text of a streaming part has grown. Only on streams with `parts=delta`."""

    id: str
    type: Literal["message.part.delta"] = "message.part.delta"
    properties: PartGain


class EventMessagePartRemoved(Wire):
    """A part is gone: it was deleted, its revert was made final, or the attempt that wrote it failed."""

    id: str
    type: Literal["message.part.removed"] = "message.part.removed"
    properties: PartRef


class EventMessagePartUpdated(Wire):
    """A part was stored or has changed. While the part streams, `delta` is its new text."""

    id: str
    type: Literal["message.part.updated"] = "message.part.updated"
    properties: PartChange


class EventMessageRemoved(Wire):
    """A message is gone: it was deleted, or its revert was made final."""

    id: str
    type: Literal["message.removed"] = "message.removed"
    properties: MessageRef


class EventMessageUpdated(Wire):
    """A message was stored, or anything of it but its parts has changed."""

    id: str
    type: Literal["message.updated"] = "message.updated"
    properties: MessageInfo


class EventPermissionAsked(Wire):
    """A tool call, or a client, waits for the user's permission."""

    id: str
    type: Literal["permission.asked"] = "permission.asked"
    properties: PermissionRequest


class EventPermissionReplied(Wire):
    """A permission request was answered or withdrawn."""

    id: str
    type: Literal["permission.replied"] = "permission.replied"
    properties: PermissionReply


class EventProjectUpdated(Wire):
    """A project was found or changed: its name, icon, commands or checkouts."""

    id: str
    type: Literal["project.updated"] = "project.updated"
    properties: Project


class EventPromptDequeued(Wire):
    """The prompt's turn begins, or it was removed from the queue."""

    id: str
    type: Literal["prompt.dequeued"] = "prompt.dequeued"
    properties: QueueRef


class EventPromptQueued(Wire):
    """A prompt waits for a turn of its own (`whenBusy: 'queue'`)."""

    id: str
    type: Literal["prompt.queued"] = "prompt.queued"
    properties: QueueRef


class EventPtyCreated(Wire):
    """A terminal was made."""

    id: str
    type: Literal["pty.created"] = "pty.created"
    properties: PtyInfo


class EventPtyDeleted(Wire):
    """A terminal is gone."""

    id: str
    type: Literal["pty.deleted"] = "pty.deleted"
    properties: PtyRef


class EventPtyExited(Wire):
    """The terminal's program has exited. A terminal that was made by `POST /pty` is gone then."""

    id: str
    type: Literal["pty.exited"] = "pty.exited"
    properties: PtyExit


class EventPtyUpdated(Wire):
    """A terminal has another title or size."""

    id: str
    type: Literal["pty.updated"] = "pty.updated"
    properties: PtyInfo


class EventQuestionAsked(Wire):
    """The model has asked the user something, and waits."""

    id: str
    type: Literal["question.asked"] = "question.asked"
    properties: QuestionRequest


class EventQuestionRejected(Wire):
    """A question was rejected or withdrawn."""

    id: str
    type: Literal["question.rejected"] = "question.rejected"
    properties: QuestionRef


class EventQuestionReplied(Wire):
    """A question was answered."""

    id: str
    type: Literal["question.replied"] = "question.replied"
    properties: QuestionReply


class EventServerConnected(Wire):
    """The first event of every stream."""

    id: str
    type: Literal["server.connected"] = "server.connected"
    properties: Nothing


class EventServerHeartbeat(Wire):
    """Nothing has happened for a while; it keeps the connection open."""

    id: str
    type: Literal["server.heartbeat"] = "server.heartbeat"
    properties: Nothing


class EventServerInstanceDisposed(Wire):
    """The directory was closed: what ran there is aborted. The next request opens it anew."""

    id: str
    type: Literal["server.instance.disposed"] = "server.instance.disposed"
    properties: OfDirectory


class EventServerResync(Wire):
    """The cursor is older than the journal: read everything again."""

    id: str
    type: Literal["server.resync"] = "server.resync"
    properties: Nothing


class EventSessionCompacted(Wire):
    """A summary stands for the messages before it."""

    id: str
    type: Literal["session.compacted"] = "session.compacted"
    properties: OfSession


class EventSessionCreated(Wire):
    """A session was created, forked or imported, or a subagent was given a task."""

    id: str
    type: Literal["session.created"] = "session.created"
    properties: SessionInfo


class EventSessionDeleted(Wire):
    """The session is gone with its messages, or for its former owner, given to another user."""

    id: str
    type: Literal["session.deleted"] = "session.deleted"
    properties: SessionInfo


class EventSessionDiff(Wire):
    """The files that the session has changed differ from those announced before."""

    id: str
    type: Literal["session.diff"] = "session.diff"
    properties: DiffOfSession


class EventSessionError(Wire):
    """A turn failed, a command could not be begun, a file of a prompt could not be read, or a revert could not put files back."""

    id: str
    type: Literal["session.error"] = "session.error"
    properties: ErrorOfSession


class EventSessionIdle(Wire):
    """The session's turn is over, and its record complete."""

    id: str
    type: Literal["session.idle"] = "session.idle"
    properties: OfSession


class EventSessionNextAgentSwitched(Wire):
    """The session's agent is another one, by the second API. Only its event streams have it."""

    id: str
    type: Literal["session.next.agent.switched"] = "session.next.agent.switched"
    properties: SwitchedAgent


class EventSessionNextModelSwitched(Wire):
    """The session's model is another one, by the second API. Only its event streams have it."""

    id: str
    type: Literal["session.next.model.switched"] = "session.next.model.switched"
    properties: SwitchedModel


class EventSessionNextRevertCleared(Wire):
    """The staged revert was undone."""

    id: str
    type: Literal["session.next.revert.cleared"] = "session.next.revert.cleared"
    properties: SessionMoment


class EventSessionNextRevertCommitted(Wire):
    """The messages from here on are removed."""

    id: str
    type: Literal["session.next.revert.committed"] = "session.next.revert.committed"
    properties: CommittedRevert


class EventSessionNextRevertStaged(Wire):
    """Files are restored and messages hidden from here on, until the revert is cleared or committed."""

    id: str
    type: Literal["session.next.revert.staged"] = "session.next.revert.staged"
    properties: StagedRevert


class EventSessionStatus(Wire):
    """The session has become busy or idle, or waits to send a request to the model again (`retry`)."""

    id: str
    type: Literal["session.status"] = "session.status"
    properties: StatusOfSession


class EventSessionUpdated(Wire):
    """Anything of a session has changed: its title, model, permissions, share, revert, sums or times."""

    id: str
    type: Literal["session.updated"] = "session.updated"
    properties: SessionInfo


class EventTodoUpdated(Wire):
    """The model has changed the session's to-do list."""

    id: str
    type: Literal["todo.updated"] = "todo.updated"
    properties: TodosOfSession


class EventToken(Wire):
    """`expires` in epoch milliseconds."""

    token: str
    expires: int


class EventTuiCommandExecute(Wire):
    """Terminal clients run a command of theirs."""

    id: str
    type: Literal["tui.command.execute"] = "tui.command.execute"
    properties: TerminalCommandName


class EventTuiPromptAppend(Wire):
    """Terminal clients append the text to what stands in their prompt."""

    id: str
    type: Literal["tui.prompt.append"] = "tui.prompt.append"
    properties: PromptText


class EventTuiSessionSelect(Wire):
    """Terminal clients show a session."""

    id: str
    type: Literal["tui.session.select"] = "tui.session.select"
    properties: SelectedSession


class EventTuiToastShow(Wire):
    """Terminal clients show a message for a while."""

    id: str
    type: Literal["tui.toast.show"] = "tui.toast.show"
    properties: Toast


class EventVcsBranchUpdated(Wire):
    """Another branch is checked out than before; no name where HEAD is detached."""

    id: str
    type: Literal["vcs.branch.updated"] = "vcs.branch.updated"
    properties: BranchName


class EventWebhookDisabled(Wire):
    """The server sends this webhook nothing any more."""

    id: str
    type: Literal["webhook.disabled"] = "webhook.disabled"
    properties: WebhookRef


class EventWorktreeFailed(Wire):
    """The worktree's files could not be checked out."""

    id: str
    type: Literal["worktree.failed"] = "worktree.failed"
    properties: WorktreeFailure


class EventWorktreeReady(Wire):
    """The files of the worktree, which `directory` names, are there."""

    id: str
    type: Literal["worktree.ready"] = "worktree.ready"
    properties: WorktreeName


class ExperimentalCapabilities(Wire):
    background_subagents: Annotated[bool, Field(alias="backgroundSubagents")]


class ExperimentalConfig(Wire):
    """`mcp_timeout` is milliseconds."""

    hook: HooksConfig | None = None
    chat_max_retries: Annotated[float | None, Field(alias="chatMaxRetries")] = None
    disable_paste_summary: bool | None = None
    batch_tool: bool | None = None
    open_telemetry: Annotated[bool | None, Field(alias="openTelemetry")] = None
    primary_tools: list[str] | None = None
    continue_loop_on_deny: bool | None = None
    mcp_timeout: int | None = None
    policies: list[PolicyConfig] | None = None


class ExtensionStatus(Wire):
    """How the loading of a plugin or tool file ended. `place`: its file, or its name in the configuration."""

    name: str
    place: str
    kind: Literal["plugin", "tool"]
    status: Literal["loaded", "skipped", "failed"]
    reason: str | None = None


class Failed(Wire):
    status: Literal["error"] = "error"
    input: dict[str, Any]
    error: str
    metadata: dict[str, Any] | None = None
    time: Ended


class FileDiff(Wire):
    """One file's change; `file` is relative to the worktree, `before` and `after` are whole texts, empty when binary, or when
    those of the diff are too large. `patch` is a unified diff, absent when binary or too large. Older diffs, and imported
    ones, lack it and `status`.
    """

    file: str
    before: str
    after: str
    additions: int
    deletions: int
    patch: str | None = None
    status: Literal["added", "deleted", "modified"] | None = None


class FileNode(Wire):
    """`path` is relative to the directory that the request works in; `ignored` is git's view."""

    name: str
    path: str
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


class FilePart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["file"] = "file"
    mime: str
    filename: str | None = None
    description: str | None = None
    url: str
    source: Annotated[FileSource | SymbolSource | ResourceSource, Field(discriminator="type")] | None = None


class FilePartInput(Wire):
    id: str | None = None
    type: Literal["file"] = "file"
    mime: str
    filename: str | None = None
    description: str | None = None
    url: str
    source: Annotated[FileSource | SymbolSource | ResourceSource, Field(discriminator="type")] | None = None


class FilePatch(Wire):
    """A structured patch as the npm package `diff` makes it."""

    old_file_name: Annotated[str, Field(alias="oldFileName")]
    new_file_name: Annotated[str, Field(alias="newFileName")]
    old_header: Annotated[str | None, Field(alias="oldHeader")] = None
    new_header: Annotated[str | None, Field(alias="newHeader")] = None
    hunks: list[PatchHunk]
    index: str | None = None


class FileRef(Wire):
    file: str


class FileSource(Wire):
    text: SourceText
    type: Literal["file"] = "file"
    path: str


class Forgotten(Wire):
    success: Literal[True] = True


class ForkInput(Wire):
    message_id: Annotated[str | None, Field(alias="messageID")] = None


class FormatterConfig(Wire):
    disabled: bool | None = None
    command: list[str] | None = None
    environment: dict[str, str] | None = None
    extensions: list[str] | None = None


class FormatterStatus(Wire):
    """`enabled`: the program was found, and the project uses it."""

    name: str
    extensions: list[str]
    enabled: bool


class FoundPart(Wire):
    """`snippet`: some of the part's text, as it is stored. `ranges`: where the words are in it, [start, end) in UTF-16 code
    units, which JavaScript counts strings in. `time`: when the part began, in milliseconds; `title`: the session's.
    """

    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str, Field(alias="partID")]
    role: str
    title: str
    time: int
    snippet: str
    ranges: list[list[Any]]


class FoundParts(Wire):
    """`next`: the cursor of the next page; absent on the last one."""

    results: list[FoundPart]
    next: str | None = None


class GitReferenceConfig(Wire):
    repository: str
    branch: str | None = None
    description: str | None = None
    hidden: bool | None = None


class GlobalEvent(Wire):
    """An item of GET /global/event: an event and the directory it belongs to, absent for the server's own."""

    directory: str | None = None
    payload: Event


class GlobalSession(Wire):
    """With its project; null if the project is not stored."""

    id: str
    slug: str
    project_id: Annotated[str, Field(alias="projectID")]
    directory: str
    path: str | None = None
    """The directory, relative to the top of its checkout; empty: that top"""
    parent_id: Annotated[str | None, Field(alias="parentID")] = None
    summary: SessionSummary | None = None
    cost: float | None = None
    """Of its steps, in dollars"""
    tokens: Tokens | None = None
    """Of its steps"""
    share: Share | None = None
    title: str
    agent: str | None = None
    model: SessionModel | None = None
    metadata: dict[str, Any] | None = None
    version: str
    time: SessionTime
    permission: list[Rule] | None = None
    revert: Revert | None = None
    owner: str | None = None
    """The user it belongs to, on a server with users"""
    pinned: bool | None = None
    """Stays, however old it is, when old sessions are deleted"""
    no_undo: Annotated[str | None, Field(alias="noUndo")] = None
    """Why changes of files cannot be reverted in its directory"""
    project: ProjectSummary | None


class GroupUsage(Wire):
    tokens: Tokens
    cost: float
    turns: int
    tool_calls: Annotated[int, Field(alias="toolCalls")]
    key: str
    """`provider/model`, a provider, a day (UTC, `2026-01-31`), a session, …"""


class Health(Wire):
    healthy: Literal[True] = True
    version: str
    replicas: list[ReplicaHealth] | None = None


class HookConfig(Wire):
    command: list[str]
    environment: dict[str, str] | None = None


class HooksConfig(Wire):
    file_edited: dict[str, list[HookConfig]] | None = None
    session_completed: list[HookConfig] | None = None


class Idle(Wire):
    type: Literal["idle"] = "idle"


class ImageAttachmentConfig(Wire):
    auto_resize: bool | None = None
    max_width: int | None = None
    max_height: int | None = None
    max_base64_bytes: int | None = None


class ImportedSessions(Wire):
    """The session as it is stored, and notes about what was left out of the document."""

    info: Session
    sessions: list[str]
    """Ids of the session and its descendants, in the document's order"""
    notes: list[str]
    """What was not taken over, and why"""


class InitInput(Wire):
    provider_id: Annotated[str, Field(alias="providerID")]
    model_id: Annotated[str, Field(alias="modelID")]
    message_id: Annotated[str, Field(alias="messageID")]


class InterleavedConfig(Wire):
    field: str


class InterleavedField(Wire):
    """The field of a message in which the model wants its reasoning back."""

    field: str


class JsonSchemaFormat(Wire):
    """The answer is an object that fits the schema."""

    type: Literal["json_schema"] = "json_schema"
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    """A JSON schema of an object; a $ref stays within it"""
    retry_count: Annotated[int | None, Field(alias="retryCount")] = None
    """How often a model that gives no such answer is asked again: 2 if absent, at most 10"""


class LSPStatus(Wire):
    """`root` is relative to the directory that the request works in, empty for that directory."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class LocalReferenceConfig(Wire):
    path: str
    description: str | None = None
    hidden: bool | None = None


class LogEntry(Wire):
    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


class LspConfig(Wire):
    command: list[str] | None = None
    extensions: list[str] | None = None
    disabled: bool | None = None
    env: dict[str, str] | None = None
    initialization: dict[str, Any] | None = None


class MCPStatusConnected(Wire):
    status: Literal["connected"] = "connected"


class MCPStatusDisabled(Wire):
    status: Literal["disabled"] = "disabled"


class MCPStatusFailed(Wire):
    status: Literal["failed"] = "failed"
    error: str


class MCPStatusNeedsAuth(Wire):
    status: Literal["needs_auth"] = "needs_auth"


class MCPStatusNeedsClientRegistration(Wire):
    status: Literal["needs_client_registration"] = "needs_client_registration"
    error: str


class MatchedText(Wire):
    text: str


class McpEnabledConfig(Wire):
    """A switch for a server that another layer describes."""

    enabled: bool


class McpLocalConfig(Wire):
    """`timeout` is milliseconds; `cwd` is in the directory or its checkout."""

    type: Literal["local"] = "local"
    command: list[str]
    cwd: str | None = None
    environment: dict[str, str] | None = None
    enabled: bool | None = None
    timeout: int | None = None


class McpOAuthConfig(Wire):
    client_id: Annotated[str | None, Field(alias="clientId")] = None
    client_secret: Annotated[str | None, Field(alias="clientSecret")] = None
    scope: str | None = None
    callback_port: Annotated[int | None, Field(alias="callbackPort")] = None
    redirect_uri: Annotated[str | None, Field(alias="redirectUri")] = None


class McpPage(Wire):
    mcp_name: Annotated[str, Field(alias="mcpName")]
    url: str


class McpRemoteConfig(Wire):
    """`timeout` is milliseconds; `oauth: false` turns its detection off."""

    type: Literal["remote"] = "remote"
    url: str
    enabled: bool | None = None
    headers: dict[str, str] | None = None
    oauth: McpOAuthConfig | Literal[False] | None = None
    timeout: int | None = None


class McpResource(Wire):
    """`client`: the server's name."""

    name: str
    uri: str
    description: str | None = None
    mime_type: Annotated[str | None, Field(alias="mimeType")] = None
    client: str


class McpServerRef(Wire):
    server: str


class MessageAbortedError(Wire):
    name: Literal["MessageAbortedError"] = "MessageAbortedError"
    data: MessageData


class MessageData(Wire):
    message: str


class MessageInfo(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    info: Message


class MessageOutputLengthError(Wire):
    name: Literal["MessageOutputLengthError"] = "MessageOutputLengthError"
    data: EmptyData


class MessagePath(Wire):
    """Where the turn ran: the instance's directory and its worktree."""

    cwd: str
    root: str


class MessageRef(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]


class MessageWithParts(Wire):
    info: Message
    parts: list[Part]


class Modalities(Wire):
    text: bool
    audio: bool
    image: bool
    video: bool
    pdf: bool


class ModalitiesConfig(Wire):
    input: list[Literal["text", "audio", "image", "video", "pdf"]] | None = None
    output: list[Literal["text", "audio", "image", "video", "pdf"]] | None = None


class Model(Wire):
    id: str
    provider_id: Annotated[str, Field(alias="providerID")]
    api: ModelApi
    name: str
    family: str | None = None
    capabilities: Capabilities
    cost: ModelPrice
    limit: ModelLimit
    status: Literal["alpha", "beta", "deprecated", "active"]
    options: dict[str, Any]
    headers: dict[str, str]
    release_date: str
    variants: dict[str, dict[str, Any]] | None = None


class ModelApi(Wire):
    """`id`: the name in the provider's API. `npm`: the adapter's name in OpenCode's configuration."""

    id: str
    url: str
    npm: str


class ModelLimit(Wire):
    context: int
    input: int | None = None
    output: int


class ModelLimitConfig(Wire):
    """Tokens."""

    context: float
    input: float | None = None
    output: float


class ModelPrice(Wire):
    input: float
    output: float
    cache: CachePrice
    tiers: list[PriceTier] | None = None
    experimental_over200_k: Annotated[Price | None, Field(alias="experimentalOver200K")] = None


class ModelPriceConfig(Wire):
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    context_over_200k: PriceConfig | None = None


class ModelProviderConfig(Wire):
    npm: str | None = None
    api: str | None = None


class ModelRef(Wire):
    provider_id: Annotated[str, Field(alias="providerID")]
    model_id: Annotated[str, Field(alias="modelID")]


class NamedError(Wire):
    name: str
    data: ErrorData


class NamedWorkspace(Wire):
    id: str
    type: str
    name: str
    branch: str | None = None
    directory: str | None = None
    extra: Any = None
    project_id: Annotated[str, Field(alias="projectID")]
    time_used: Annotated[float, Field(alias="timeUsed")]


class NewServer(Wire):
    name: str
    config: Annotated[McpLocalConfig | McpRemoteConfig, Field(discriminator="type")]


class NewWebhook(Wire):
    """Only this answer has the secret."""

    id: str
    url: str
    events: list[str]
    directory: str | None = None
    session_id: Annotated[str | None, Field(alias="sessionID")] = None
    owner: str | None = None
    enabled: bool
    disabled_reason: Annotated[str | None, Field(alias="disabledReason")] = None
    failing: WebhookFailure | None = None
    time: WebhookTime
    secret: str
    """What messages are signed with: `whsec_` and 24 to 64 bytes in base64"""


class NotFoundError(Wire):
    name: Literal["NotFoundError"] = "NotFoundError"
    data: ErrorData


class NotReverted(Wire):
    """A file, or a tool, whose changes a revert could not undo."""

    file: str
    reason: str


class Nothing(Wire):
    pass


class OAuth(Wire):
    type: Literal["oauth"] = "oauth"
    refresh: str
    access: str
    expires: float
    account_id: Annotated[str | None, Field(alias="accountId")] = None
    enterprise_url: Annotated[str | None, Field(alias="enterpriseUrl")] = None


class OAuthCallback(Wire):
    method: float
    code: str | None = None


class OAuthStart(Wire):
    method: float
    inputs: dict[str, str] | None = None


class OfDirectory(Wire):
    directory: str


class OfSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]


class PartChange(Wire):
    """`time` in epoch milliseconds."""

    session_id: Annotated[str, Field(alias="sessionID")]
    part: Part
    delta: str | None = None
    time: int


class PartGain(Wire):
    """New text of a part, for clients that asked for `parts=delta`: the first is also the first that they hear of the part."""

    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str, Field(alias="partID")]
    part_type: Annotated[str, Field(alias="partType")]
    field: str
    delta: str


class PartRef(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str, Field(alias="partID")]


class PatchHunk(Wire):
    """`lines` start with ` `, `-` or `+`, or say that there is no newline at the end."""

    old_start: Annotated[int, Field(alias="oldStart")]
    old_lines: Annotated[int, Field(alias="oldLines")]
    new_start: Annotated[int, Field(alias="newStart")]
    new_lines: Annotated[int, Field(alias="newLines")]
    lines: list[str]


class PatchPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["patch"] = "patch"
    hash: str
    files: list[str]


class Paths(Wire):
    home: str
    state: str
    config: str
    worktree: str
    directory: str


class Pending(Wire):
    status: Literal["pending"] = "pending"
    input: dict[str, Any]
    raw: str


class PermissionReply(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    request_id: Annotated[str, Field(alias="requestID")]
    reply: Literal["once", "always", "reject"]


class PermissionRequest(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    tool: CallRef | None = None
    unattended: bool | None = None
    """A client asked: no tool call waits for the reply"""


class PolicyConfig(Wire):
    """Whether a provider may be used; `resource` is its id, or a pattern of ids. The last that matches decides."""

    action: Literal["provider.use"] = "provider.use"
    effect: Literal["allow", "deny"]
    resource: str


class Position(Wire):
    line: int
    character: int


class Price(Wire):
    input: float
    output: float
    cache: CachePrice


class PriceConfig(Wire):
    """Dollars a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class PriceTier(Wire):
    input: float
    output: float
    cache: CachePrice
    tier: CostTier


class Project(Wire):
    """`id` is the hash of the repository's first commit, or `global` outside git; `worktree` is its main checkout."""

    id: str
    worktree: str
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None
    time: ProjectTime
    sandboxes: list[str]


class ProjectCommands(Wire):
    start: str | None = None


class ProjectCopy(Wire):
    directory: str


class ProjectCopyInput(Wire):
    strategy: str
    directory: str
    name: str | None = None


class ProjectCopyRemoval(Wire):
    directory: str
    force: bool


class ProjectDirectory(Wire):
    directory: str


class ProjectIcon(Wire):
    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectSummary(Wire):
    id: str
    name: str | None = None
    worktree: str


class ProjectTime(Wire):
    created: int
    updated: int
    initialized: int | None = None


class ProjectUpdate(Wire):
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


class PromptAppend(Wire):
    type: Literal["tui.prompt.append"] = "tui.prompt.append"
    properties: PromptText


class PromptInput(Wire):
    message_id: Annotated[str | None, Field(alias="messageID")] = None
    model: ModelRef | None = None
    agent: str | None = None
    no_reply: Annotated[bool | None, Field(alias="noReply")] = None
    tools: dict[str, bool] | None = None
    system: str | None = None
    variant: str | None = None
    format: Annotated[TextFormat | JsonSchemaFormat, Field(discriminator="type")] | None = None
    when_busy: Annotated[Literal["join", "reject", "interrupt", "queue"] | None, Field(alias="whenBusy")] = None
    """What becomes of the prompt while the session is busy. join (the default): the running turn answers it too; reject: 409;
    interrupt: the running turn is aborted, then this prompt is answered; queue: it gets a turn of its own after the running
    one, and is no message of the session before
    """
    deadline_seconds: Annotated[float | None, Field(alias="deadlineSeconds")] = None
    """From now on. When they have passed, the turn that answers the prompt is aborted"""
    parts: list[PartInput]


class PromptText(Wire):
    text: str


class PromptedModel(Wire):
    """The model of a prompt with its variant, where clients of OpenCode 1.18 look for it."""

    provider_id: Annotated[str, Field(alias="providerID")]
    model_id: Annotated[str, Field(alias="modelID")]
    variant: str | None = None


class ProviderAuthAuthorization(Wire):
    url: str
    method: Literal["auto", "code"]
    instructions: str


class ProviderAuthData(Wire):
    message: str
    provider_id: Annotated[str, Field(alias="providerID")]


class ProviderAuthError(Wire):
    name: Literal["ProviderAuthError"] = "ProviderAuthError"
    data: ProviderAuthData


class ProviderAuthMethod(Wire):
    type: Literal["oauth", "api"]
    label: str


class ProviderConfig(Wire):
    api: str | None = None
    name: str | None = None
    env: list[str] | None = None
    id: str | None = None
    npm: str | None = None
    models: dict[str, ProviderModelConfig] | None = None
    whitelist: list[str] | None = None
    blacklist: list[str] | None = None
    options: ProviderOptions | None = None


class ProviderInfo(Wire):
    id: str
    name: str
    source: Literal["env", "config", "custom", "api"]
    env: list[str]
    key: str | None = None
    options: dict[str, Any]
    models: dict[str, Model]


class ProviderList(Wire):
    all: list[ProviderInfo]
    default: dict[str, str]
    connected: list[str]


class ProviderModelConfig(Wire):
    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    temperature: bool | None = None
    tool_call: bool | None = None
    interleaved: bool | str | InterleavedConfig | None = None
    cost: ModelPriceConfig | None = None
    limit: ModelLimitConfig | None = None
    modalities: ModalitiesConfig | None = None
    experimental: bool | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    options: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    provider: ModelProviderConfig | None = None
    variants: dict[str, VariantConfig] | None = None


class ProviderOptions(Wire):
    """`chunk_timeout`, else `timeout`: milliseconds without data; false: no limit. Other keys go to the adapter as they are."""

    api_key: Annotated[str | None, Field(alias="apiKey")] = None
    base_url: Annotated[str | None, Field(alias="baseURL")] = None
    enterprise_url: Annotated[str | None, Field(alias="enterpriseUrl")] = None
    headers: dict[str, str] | None = None
    set_cache_key: Annotated[bool | None, Field(alias="setCacheKey")] = None
    timeout: int | Literal[False] | None = None
    header_timeout: Annotated[int | Literal[False] | None, Field(alias="headerTimeout")] = None
    chunk_timeout: Annotated[int | Literal[False] | None, Field(alias="chunkTimeout")] = None


class PruneInput(Wire):
    older_than_days: Annotated[float, Field(alias="olderThanDays")]
    """Of a session and all below it, none has changed for so long"""
    archived_only: Annotated[bool | None, Field(alias="archivedOnly")] = None
    dry_run: Annotated[bool | None, Field(alias="dryRun")] = None


class PruneReport(Wire):
    """`trees`: root sessions that were deleted (of a dry run: that would be) with all below them, `sessions` altogether. The
    others count trees that are as old, and stay.
    """

    trees: int
    sessions: int
    running: int
    shared: int
    pinned: int


class Pty(Wire):
    """A terminal with its program. `exitCode` is there once the program has exited; a signal n is 128 + n, as in a shell."""

    id: str
    title: str
    command: str
    args: list[str]
    cwd: str
    status: Literal["running", "exited"]
    pid: int
    exit_code: Annotated[int | None, Field(alias="exitCode")] = None


class PtyExit(Wire):
    id: str
    exit_code: Annotated[int, Field(alias="exitCode")]


class PtyInfo(Wire):
    info: Pty


class PtyInput(Wire):
    command: str | None = None
    """The program; the server's shell if absent"""
    args: list[str] | None = None
    """Its arguments; `-l` for a shell without any"""
    cwd: str | None = None
    """Within the directory or its checkout; the directory if absent"""
    title: str | None = None
    env: dict[str, str] | None = None
    """Variables beside those that commands see"""


class PtyRef(Wire):
    id: str


class PtyShell(Wire):
    """`acceptable`: it can run the model's commands."""

    path: str
    name: str
    acceptable: bool


class PtySize(Wire):
    rows: int
    cols: int


class PtyTicket(Wire):
    """A login for one connection to one terminal. `expires_in` in seconds."""

    ticket: str
    expires_in: int


class PtyUpdate(Wire):
    """Absent fields stay as they are."""

    title: str | None = None
    size: PtySize | None = None


class QuestionInfo(Wire):
    question: str
    header: str
    options: list[QuestionOption]
    multiple: bool | None = None
    custom: bool | None = None


class QuestionOption(Wire):
    label: str
    description: str


class QuestionRef(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    request_id: Annotated[str, Field(alias="requestID")]


class QuestionReply(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    request_id: Annotated[str, Field(alias="requestID")]
    answers: list[list[str]]


class QuestionRequest(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    questions: list[QuestionInfo]
    tool: CallRef | None = None


class QueueRef(Wire):
    """`message_id`: of the prompt's message, if the client has named it."""

    session_id: Annotated[str, Field(alias="sessionID")]
    queued_id: Annotated[str, Field(alias="queuedID")]
    message_id: Annotated[str | None, Field(alias="messageID")] = None


class QueuedPrompt(Wire):
    """A prompt that waits for a turn of its own. Its message gets its id when that turn begins, unless the prompt names one."""

    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    time: QueuedTime
    prompt: PromptInput


class QueuedTime(Wire):
    created: int


class Range(Wire):
    start: Position
    end: Position


class ReasoningPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["reasoning"] = "reasoning"
    text: str
    metadata: dict[str, Any] | None = None
    time: Span


class ReplicaHealth(Wire):
    """A server of this database. `started` in epoch ms, `heartbeatAge` in ms, by the database's clock. `journalLag`: how many
    events its clients had not been given yet at its last heartbeat.
    """

    id: str
    address: str
    version: str
    started: int
    heartbeat_age: Annotated[int, Field(alias="heartbeatAge")]
    alive: bool
    running_sessions: Annotated[int, Field(alias="runningSessions")]
    journal_lag: Annotated[int | None, Field(alias="journalLag")] = None


class ReplyInput(Wire):
    reply: Literal["once", "always", "reject"]
    message: str | None = None


class ResourceSource(Wire):
    text: SourceText
    type: Literal["resource"] = "resource"
    client_name: Annotated[str, Field(alias="clientName")]
    uri: str


class RespondInput(Wire):
    """The deprecated route's body: POST /session/:id/permissions/:permissionID."""

    response: Literal["once", "always", "reject"]


class Retry(Wire):
    """Waiting to send the request to the provider again; `next` is epoch milliseconds."""

    type: Literal["retry"] = "retry"
    attempt: int
    message: str
    next: int


class RetryPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["retry"] = "retry"
    attempt: int
    error: APIError
    time: RetryTime


class RetryTime(Wire):
    created: int


class Revert(Wire):
    """`snapshot` is the tree from just before. Opensession's own: `notReverted`; `unfinished` while files are being restored. If
    the server is killed meanwhile, another server, or its next start, undoes the revert.
    """

    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str | None, Field(alias="partID")] = None
    snapshot: str | None = None
    diff: str | None = None
    not_reverted: Annotated[list[NotReverted] | None, Field(alias="notReverted")] = None
    unfinished: bool | None = None


class RevertInput(Wire):
    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str | None, Field(alias="partID")] = None
    dry_run: Annotated[bool | None, Field(alias="dryRun")] = None
    files: bool | None = None
    """false: only the messages are reverted"""


class RevertState(Wire):
    """A `Revert`, as the second API tells it. `files`: the first thousand."""

    message_id: Annotated[str, Field(alias="messageID")]
    part_id: Annotated[str | None, Field(alias="partID")] = None
    snapshot: str | None = None
    diff: str | None = None
    files: list[RevertedFile] | None = None


class RevertedFile(Wire):
    """What a revert does to a file. `path` is relative to the worktree."""

    path: str
    status: Literal["added", "deleted", "modified"]
    additions: int
    deletions: int
    patch: str


class Rule(Wire):
    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class Running(Wire):
    status: Literal["running"] = "running"
    input: dict[str, Any]
    title: str | None = None
    metadata: dict[str, Any] | None = None
    time: Started


class SandboxConfig(Wire):
    """What commands reach besides the project, if they run in a sandbox. `network: false` leaves a loopback of their own."""

    network: bool | None = None
    read: list[str] | None = None
    write: list[str] | None = None


class SelectedSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]


class ServerConfig(Wire):
    port: int | None = None
    hostname: str | None = None
    mdns: bool | None = None
    mdns_domain: Annotated[str | None, Field(alias="mdnsDomain")] = None
    cors: list[str] | None = None


class Session(Wire):
    """`path`, `cost` and `tokens` are in all answers but that of the creation, where they would say nothing."""

    id: str
    slug: str
    project_id: Annotated[str, Field(alias="projectID")]
    directory: str
    path: str | None = None
    """The directory, relative to the top of its checkout; empty: that top"""
    parent_id: Annotated[str | None, Field(alias="parentID")] = None
    summary: SessionSummary | None = None
    cost: float | None = None
    """Of its steps, in dollars"""
    tokens: Tokens | None = None
    """Of its steps"""
    share: Share | None = None
    title: str
    agent: str | None = None
    model: SessionModel | None = None
    metadata: dict[str, Any] | None = None
    version: str
    time: SessionTime
    permission: list[Rule] | None = None
    revert: Revert | None = None
    owner: str | None = None
    """The user it belongs to, on a server with users"""
    pinned: bool | None = None
    """Stays, however old it is, when old sessions are deleted"""
    no_undo: Annotated[str | None, Field(alias="noUndo")] = None
    """Why changes of files cannot be reverted in its directory"""


class SessionDestination(Wire):
    directory: str


class SessionDocument(Wire):
    info: Session
    messages: list[MessageWithParts]
    todo: list[Todo]
    diff: list[FileDiff]
    children: list[SessionHistory] | None = None
    """All descendants, parents before their children; `info.parentID` makes the tree"""


class SessionHistory(Wire):
    """One session without its descendants."""

    info: Session
    messages: list[MessageWithParts]
    todo: list[Todo]
    diff: list[FileDiff]


class SessionInfo(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    info: Session


class SessionModel(Wire):
    """The model for prompts that name none, in a session without an earlier prompt."""

    id: str
    provider_id: Annotated[str, Field(alias="providerID")]
    variant: str | None = None


class SessionMoment(Wire):
    """`timestamp` in epoch milliseconds."""

    session_id: Annotated[str, Field(alias="sessionID")]
    timestamp: int


class SessionMove(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    destination: SessionDestination
    move_changes: Annotated[bool | None, Field(alias="moveChanges")] = None


class SessionSelect(Wire):
    type: Literal["tui.session.select"] = "tui.session.select"
    properties: SelectedSession


class SessionSummary(Wire):
    additions: int
    deletions: int
    files: int
    diffs: list[FileDiff] | None = None


class SessionTime(Wire):
    created: int
    updated: int
    compacting: int | None = None
    archived: float | None = None


class Share(Wire):
    url: str


class SharedConversation(Wire):
    session: SharedSession
    messages: list[MessageWithParts]
    diff: list[FileDiff]
    todo: list[Todo]


class SharedSession(Wire):
    """What a visitor may know of a session: no directory, no project, no permission rules."""

    id: str
    title: str
    version: str
    time: SessionTime
    summary: SessionSummary | None = None


class ShellInput(Wire):
    message_id: Annotated[str | None, Field(alias="messageID")] = None
    """Of the user message; it must be new"""
    agent: str
    command: str
    model: ModelRef | None = None


class SignInCode(Wire):
    code: str


class SignInPage(Wire):
    """Where the user signs in, and the state that the browser comes back with; empty if no sign-in is needed."""

    authorization_url: Annotated[str, Field(alias="authorizationUrl")]
    oauth_state: Annotated[str, Field(alias="oauthState")]


class Skill(Wire):
    """`content`: the skill's text without the frontmatter."""

    name: str
    description: str
    location: str
    content: str


class SkillsConfig(Wire):
    """`paths`: more folders of skills, relative to the directory."""

    paths: list[str] | None = None
    urls: list[str] | None = None


class SnapshotPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["snapshot"] = "snapshot"
    snapshot: str


class SourceText(Wire):
    value: str
    start: int
    end: int


class Span(Wire):
    """Times in milliseconds since the epoch; no end until what they time has ended."""

    start: int
    end: int | None = None


class StagedRevert(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    timestamp: int
    revert: RevertState


class Started(Wire):
    start: int


class StatusOfSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    status: SessionStatus


class StepFinishPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["step-finish"] = "step-finish"
    reason: str
    snapshot: str | None = None
    cost: float
    tokens: Tokens


class StepStartPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["step-start"] = "step-start"
    snapshot: str | None = None


class StructuredOutputData(Wire):
    message: str
    retries: int


class StructuredOutputError(Wire):
    """The model gave no answer in the form that its prompt asked for, in the first request and so many retries."""

    name: Literal["StructuredOutputError"] = "StructuredOutputError"
    data: StructuredOutputData


class Submatch(Wire):
    """`start` and `end` count bytes of the line."""

    match: MatchedText
    start: int
    end: int


class SubtaskPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["subtask"] = "subtask"
    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class SubtaskPartInput(Wire):
    id: str | None = None
    type: Literal["subtask"] = "subtask"
    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class SummarizeInput(Wire):
    provider_id: Annotated[str, Field(alias="providerID")]
    model_id: Annotated[str, Field(alias="modelID")]
    auto: bool | None = None


class SwitchedAgent(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    timestamp: int
    message_id: Annotated[str, Field(alias="messageID")]
    agent: str


class SwitchedModel(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    timestamp: int
    message_id: Annotated[str, Field(alias="messageID")]
    model: SessionModel


class Symbol(Wire):
    name: str
    kind: int
    location: SymbolLocation


class SymbolLocation(Wire):
    uri: str
    range: Range


class SymbolSource(Wire):
    text: SourceText
    type: Literal["symbol"] = "symbol"
    path: str
    range: Range
    name: str
    kind: int


class SyncEvent(Wire):
    id: str
    aggregate_id: str
    seq: int
    type: str
    data: dict[str, Any]


class SyncEventInput(Wire):
    id: str
    aggregate_id: Annotated[str, Field(alias="aggregateID")]
    seq: int
    type: str
    data: dict[str, Any]


class SyncReplay(Wire):
    directory: str
    events: list[SyncEventInput]


class SyncSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]


class TerminalCommandName(Wire):
    """Any command of the terminal client; these are the ones that are described."""

    command: (
        Literal[
            "session.list",
            "session.new",
            "session.share",
            "session.interrupt",
            "session.compact",
            "session.page.up",
            "session.page.down",
            "session.line.up",
            "session.line.down",
            "session.half.page.up",
            "session.half.page.down",
            "session.first",
            "session.last",
            "prompt.clear",
            "prompt.submit",
            "agent.cycle",
        ]
        | str
    )


class TextFormat(Wire):
    """The answer may be any text."""

    type: Literal["text"] = "text"


class TextMatch(Wire):
    """A line, as `rg --json` reports it; `absolute_offset` is where it starts in the file, in bytes."""

    path: MatchedText
    lines: MatchedText
    line_number: int
    absolute_offset: int
    submatches: list[Submatch]


class TextPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["text"] = "text"
    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class TextPartInput(Wire):
    id: str | None = None
    type: Literal["text"] = "text"
    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class Toast(Wire):
    title: str | None = None
    message: str
    variant: Literal["info", "success", "warning", "error"]
    duration: int | float | None = None
    """In milliseconds; 5000 if absent"""


class ToastShow(Wire):
    type: Literal["tui.toast.show"] = "tui.toast.show"
    properties: Toast


class Todo(Wire):
    content: str
    """Brief description of the task"""
    status: str
    """Current status of the task: pending, in_progress, completed, cancelled"""
    priority: str
    """Priority level of the task: high, medium, low"""
    id: str
    """Unique identifier for the todo item"""


class TodosOfSession(Wire):
    session_id: Annotated[str, Field(alias="sessionID")]
    todos: list[Todo]


class Tokens(Wire):
    """`total`: newer OpenCode versions store it; kept in imported sessions, not computed here."""

    total: int | None = None
    input: int
    output: int
    reasoning: int
    cache: CacheTokens


class ToolListItem(Wire):
    id: str
    description: str
    parameters: Any


class ToolOutputConfig(Wire):
    """What a tool's output may have before it is truncated for the model."""

    max_lines: int | None = None
    max_bytes: int | None = None


class ToolPart(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    message_id: Annotated[str, Field(alias="messageID")]
    type: Literal["tool"] = "tool"
    call_id: Annotated[str, Field(alias="callID")]
    tool: str
    state: ToolState
    metadata: dict[str, Any] | None = None


class TuiAcceleration(Wire):
    enabled: bool


class TuiConfig(Wire):
    scroll_speed: float | None = None
    scroll_acceleration: TuiAcceleration | None = None
    diff_style: Literal["auto", "stacked"] | None = None


class Unhealthy(Wire):
    healthy: Literal[False] = False
    version: str
    reason: str


class UnknownError(Wire):
    name: Literal["UnknownError"] = "UnknownError"
    data: MessageData


class UnknownPtyError(Wire):
    """The error in the form that older clients read, and that newer ones read."""

    name: Literal["NotFoundError"] = "NotFoundError"
    data: ErrorData
    tag: Annotated[Literal["PtyNotFoundError"], Field(alias="_tag")] = "PtyNotFoundError"
    pty_id: Annotated[str, Field(alias="ptyID")]
    message: str


class UpdateInput(Wire):
    """`permission` is added after the present rules; `metadata` replaces the present one."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    permission: list[Rule] | None = None
    time: UpdateTime | None = None
    owner: str | None = None
    """Give it to another user, empty: to nobody; for admins"""
    pinned: bool | None = None
    """Whether it stays when old sessions are deleted"""


class UpdateTime(Wire):
    archived: float | None = None


class UpgradeFailure(Wire):
    success: Literal[False] = False
    error: str


class UpgradeInput(Wire):
    target: str


class UsageReport(Wire):
    """`groups` add up to `total`."""

    group: Literal["model", "provider", "day", "session", "directory", "agent"]
    total: UsageTotal
    groups: list[GroupUsage]
    """The dearest first; days in their order"""


class UsageTotal(Wire):
    """`cost` in dollars. `turns`: prompts that were answered; `toolCalls`: tool calls of the answers."""

    tokens: Tokens
    cost: float
    turns: int
    tool_calls: Annotated[int, Field(alias="toolCalls")]


class UserMessage(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    role: Literal["user"] = "user"
    time: UserTime
    summary: UserSummary | None = None
    agent: str
    model: PromptedModel
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    format: Annotated[TextFormat | JsonSchemaFormat, Field(discriminator="type")] | None = None
    deadline: int | None = None
    """When its answer must be complete, in epoch milliseconds; set by `deadlineSeconds`"""


class UserSummary(Wire):
    title: str | None = None
    body: str | None = None
    diffs: list[FileDiff]


class UserTime(Wire):
    created: int


class VariantConfig(Wire):
    disabled: bool | None = None


class VcsApplied(Wire):
    applied: Literal[True] = True


class VcsApplyData(Wire):
    message: str
    reason: Literal["non-git", "not-clean"]


class VcsApplyError(Wire):
    name: Literal["VcsApplyError"] = "VcsApplyError"
    data: VcsApplyData


class VcsFileDiff(Wire):
    """`patch` is only a header if there is too much to show."""

    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"]
    patch: str


class VcsFileStatus(Wire):
    """`file` is from the top of the checkout. Counts are lines, 0 for a binary file."""

    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"]


class VcsInfo(Wire):
    """`branch` is empty if HEAD is detached, and outside git."""

    branch: str
    default_branch: str | None = None


class VcsPatch(Wire):
    patch: str


class ViewedFile(Wire):
    """Text without surrounding white space, or the bytes in base64. `diff` and `patch` if it differs from HEAD."""

    type: Literal["text"] = "text"
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: Annotated[str | None, Field(alias="mimeType")] = None


class WatcherConfig(Wire):
    ignore: list[str] | None = None


class Webhook(Wire):
    """`disabledReason`: why the server switched it off."""

    id: str
    url: str
    events: list[str]
    directory: str | None = None
    session_id: Annotated[str | None, Field(alias="sessionID")] = None
    owner: str | None = None
    enabled: bool
    disabled_reason: Annotated[str | None, Field(alias="disabledReason")] = None
    failing: WebhookFailure | None = None
    time: WebhookTime


class WebhookDelivery(Wire):
    """One attempt, at `time` (epoch milliseconds). `messageID` is the header `webhook-id` of the request, the same in each
    attempt. Without an `error` the message was accepted.
    """

    message_id: Annotated[str, Field(alias="messageID")]
    type: str
    time: int
    attempt: int
    milliseconds: int
    status: int | None = None
    error: str | None = None


class WebhookFailure(Wire):
    """Why deliveries wait: a message has failed `attempts` times since `since` and is sent again at `nextAttempt`. Times in
    epoch milliseconds.
    """

    since: int
    attempts: int
    next_attempt: Annotated[int, Field(alias="nextAttempt")]


class WebhookInput(Wire):
    url: str
    """Where events are sent: https://… or http://…"""
    events: list[str]
    """Types of events: `session.idle`, all of a kind by `session.*`, all by `*`. Never `message.part.delta`, `server.connected`
    or `server.heartbeat`, which only event streams have. `server.resync` is sent after a gap, whatever is listed
    """
    directory: str | None = None
    """Events of this directory alone"""
    session_id: Annotated[str | None, Field(alias="sessionID")] = None
    """Events of this session alone, without its children's"""
    secret: str | None = None
    """The key of the signature: `whsec_` and 24 to 64 bytes in base64; generated if absent"""


class WebhookPatch(Wire):
    """Absent fields stay as they are."""

    url: str | None = None
    """Where events are sent: https://… or http://…"""
    events: list[str] | None = None
    """Types of events: `session.idle`, all of a kind by `session.*`, all by `*`. Never `message.part.delta`, `server.connected`
    or `server.heartbeat`, which only event streams have. `server.resync` is sent after a gap, whatever is listed
    """
    secret: str | None = None
    """What messages are signed with: `whsec_` and 24 to 64 bytes in base64"""
    enabled: bool | None = None
    """`true` resumes deliveries at once, also of a webhook that the server has switched off or that waits for its next attempt"""


class WebhookRef(Wire):
    """`removed`: the webhook is gone, not only switched off."""

    webhook_id: Annotated[str, Field(alias="webhookID")]
    url: str
    reason: str
    removed: bool


class WebhookTime(Wire):
    """In epoch milliseconds."""

    created: int


class WellKnownAuth(Wire):
    """A login at an organisation: `token` is its value of the environment variable `key`, which the configuration may name."""

    type: Literal["wellknown"] = "wellknown"
    key: str
    token: str


class WorkspaceAdapter(Wire):
    type: str
    name: str
    description: str


class WorkspaceConnection(Wire):
    workspace_id: Annotated[str, Field(alias="workspaceID")]
    status: Literal["connected", "connecting", "disconnected", "error"]


class WorkspaceInput(Wire):
    id: str | None = None
    type: str
    branch: str | None = None
    extra: Any = None


class WorkspaceWarp(Wire):
    id: str
    session_id: Annotated[str, Field(alias="sessionID")]
    copy_changes: Annotated[bool | None, Field(alias="copyChanges")] = None


class WorktreeCreateInput(Wire):
    """`start_command` runs after the project's start command."""

    name: str | None = None
    start_command: Annotated[str | None, Field(alias="startCommand")] = None


class WorktreeDirectory(Wire):
    directory: str


class WorktreeFailure(Wire):
    message: str


class WorktreeName(Wire):
    name: str
    branch: str


Part = Annotated[
    TextPart
    | SubtaskPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | RetryPart
    | CompactionPart,
    Field(discriminator="type"),
]

SessionStatus = Annotated[Idle | Retry | Busy, Field(discriminator="type")]

Event = Annotated[
    EventServerConnected
    | EventServerHeartbeat
    | EventServerResync
    | EventServerInstanceDisposed
    | EventGlobalDisposed
    | EventProjectUpdated
    | EventVcsBranchUpdated
    | EventWorktreeReady
    | EventWorktreeFailed
    | EventSessionCreated
    | EventSessionUpdated
    | EventSessionDeleted
    | EventSessionDiff
    | EventSessionStatus
    | EventSessionIdle
    | EventSessionCompacted
    | EventPromptQueued
    | EventPromptDequeued
    | EventSessionError
    | EventSessionNextAgentSwitched
    | EventSessionNextModelSwitched
    | EventSessionNextRevertStaged
    | EventSessionNextRevertCleared
    | EventSessionNextRevertCommitted
    | EventMessageUpdated
    | EventMessageRemoved
    | EventMessagePartUpdated
    | EventMessagePartDelta
    | EventMessagePartRemoved
    | EventPermissionAsked
    | EventPermissionReplied
    | EventQuestionAsked
    | EventQuestionReplied
    | EventQuestionRejected
    | EventTodoUpdated
    | EventCommandExecuted
    | EventFileEdited
    | EventLspUpdated
    | EventLspClientDiagnostics
    | EventMcpToolsChanged
    | EventMcpBrowserOpenFailed
    | EventPtyCreated
    | EventPtyUpdated
    | EventPtyExited
    | EventPtyDeleted
    | EventWebhookDisabled
    | EventTuiPromptAppend
    | EventTuiCommandExecute
    | EventTuiToastShow
    | EventTuiSessionSelect,
    Field(discriminator="type"),
]

Credentials = Annotated[OAuth | ApiAuth | WellKnownAuth, Field(discriminator="type")]

McpStatus = Annotated[
    MCPStatusConnected | MCPStatusDisabled | MCPStatusFailed | MCPStatusNeedsAuth | MCPStatusNeedsClientRegistration,
    Field(discriminator="status"),
]

MessageError = Annotated[
    ProviderAuthError
    | UnknownError
    | MessageOutputLengthError
    | MessageAbortedError
    | StructuredOutputError
    | ContextOverflowError
    | APIError,
    Field(discriminator="name"),
]

Message = Annotated[UserMessage | AssistantMessage, Field(discriminator="role")]

PartInput = Annotated[TextPartInput | FilePartInput | AgentPartInput | SubtaskPartInput, Field(discriminator="type")]

ToolState = Annotated[Pending | Running | Completed | Failed, Field(discriminator="status")]

KeybindsConfig = dict[str, str]

LayoutConfig = Literal["auto", "stretch"]

LogLevel = Literal["DEBUG", "INFO", "WARN", "ERROR"]

PermissionActionConfig = Literal["allow", "deny", "ask"]

PermissionObjectConfig = dict[str, PermissionActionConfig]

PermissionRuleConfig = PermissionActionConfig | PermissionObjectConfig

PermissionConfig = dict[str, PermissionRuleConfig] | Literal["ask", "allow", "deny"]
