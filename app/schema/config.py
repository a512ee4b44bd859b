"""The vocabulary of `opencode.json`.

A layer (one file) is validated alone, dumped with what it set (`layer`), merged with the others, and validated again. So every
rewriting here is idempotent. Unknown keys are errors in `Config`, server, provider and mcp entries, become `options` in an agent,
are kept in provider options and variants, and are dropped elsewhere.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from app.schema.base import Wire
from app.schema.model import AgentMode
from app.schema.permission import Action

RULE_KEYS = ("read", "edit", "glob", "grep", "list", "bash", "task", "external_directory", "lsp")
ACTION_KEYS = ("todowrite", "todoread", "question", "webfetch", "websearch", "codesearch", "doom_loop")

Number = Annotated[StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)], WithJsonSchema({"type": "number"})]
"""A whole number stays one."""
Positive = Annotated[StrictInt, Field(gt=0)]
NotNegative = Annotated[StrictInt, Field(ge=0)]


def _require_word(text: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"{text!r} holds a character that no path, variable or word of a command can have")
    return text


ConfigWord = Annotated[StrictStr, AfterValidator(_require_word)]
Strings = list[ConfigWord]
StringMap = dict[str, ConfigWord]
ThemeColor = Literal["primary", "secondary", "accent", "success", "warning", "error", "info"]
Modality = Literal["text", "audio", "image", "video", "pdf"]

PermissionActionConfig = TypeAliasType("PermissionActionConfig", Action)
PermissionObjectConfig = TypeAliasType("PermissionObjectConfig", dict[str, PermissionActionConfig])
PermissionRuleConfig = TypeAliasType("PermissionRuleConfig", PermissionActionConfig | PermissionObjectConfig)


def _as_permission_object(value: Any) -> Any:
    if isinstance(value, str):
        return {"*": value}
    if isinstance(value, dict):
        return {key: rule for key, rule in value.items() if key != "__originalKeys"}
    return value


def _check_action_keys(value: dict[str, Any]) -> dict[str, Any]:
    for key in ACTION_KEYS:
        if isinstance(value.get(key), dict):
            raise ValueError(f"{key} takes one of ask, allow, deny: it has no patterns")
    return value


class _PermissionSchema:
    """What clients may send: an action for everything, or an object; validated and kept as an object, in the order written."""

    @staticmethod
    def __get_pydantic_json_schema__(schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        rules = dict(handler(schema))
        rule = rules["additionalProperties"]
        action = {"type": "string", "enum": ["ask", "allow", "deny"]}
        rules["properties"] = dict.fromkeys(RULE_KEYS, rule) | dict.fromkeys(ACTION_KEYS, action)
        return {"anyOf": [rules, action]}


PermissionConfig = TypeAliasType(
    "PermissionConfig",
    Annotated[
        dict[str, PermissionRuleConfig],
        BeforeValidator(_as_permission_object),
        AfterValidator(_check_action_keys),
        _PermissionSchema,
    ],
)
KeybindsConfig = TypeAliasType("KeybindsConfig", StringMap)
LayoutConfig = TypeAliasType("LayoutConfig", Literal["auto", "stretch"])
LogLevel = TypeAliasType("LogLevel", Literal["DEBUG", "INFO", "WARN", "ERROR"])


def tools_permission(tools: Mapping[str, bool]) -> dict[str, Action]:
    """OpenCode's legacy `tools` map as permissions; no tool is added here. The tools that change files share the permission
    `edit`, but not apply_patch: switching it off, or on, says nothing of the others."""
    edits = ("edit", "write", "multiedit", "patch")
    return {("edit" if tool in edits else tool): ("allow" if on else "deny") for tool, on in tools.items()}


def with_legacy_tools(permission: Mapping[str, Any], tools: Mapping[str, bool]) -> dict[str, Any]:
    """The actions of `tools` come before those of `permission`, which override them."""
    missing = {key: action for key, action in tools_permission(tools).items() if key not in permission}
    return {**missing, **permission}


class _Section(Wire):
    """Keys are in snake_case but where an alias says otherwise. Answers have only the fields that were set."""

    model_config = ConfigDict(alias_generator=None)

    @classmethod
    def _always_there(cls) -> set[str]:
        return set()

    def layer(self) -> dict[str, Any]:
        """Only what was set, as in a file: the form in which layers are merged and clients are shown a configuration."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


class _Strict(_Section):
    model_config = ConfigDict(extra="forbid")


class _Open(_Section):
    model_config = ConfigDict(extra="allow")


class TuiAcceleration(_Section):
    enabled: StrictBool


class TuiConfig(_Section):
    scroll_speed: Annotated[float, Field(ge=0.001, strict=True)] | None = None
    scroll_acceleration: TuiAcceleration | None = None
    diff_style: Literal["auto", "stacked"] | None = None


class ServerConfig(_Strict):
    port: Positive | None = None
    hostname: StrictStr | None = None
    mdns: StrictBool | None = None
    mdns_domain: Annotated[StrictStr | None, Field(alias="mdnsDomain")] = None
    cors: Strings = []


class CommandConfig(_Section):
    template: StrictStr
    description: StrictStr | None = None
    agent: StrictStr | None = None
    model: StrictStr | None = None
    variant: StrictStr | None = None
    subtask: StrictBool | None = None


class AgentConfig(_Section):
    """Keys that are not listed here are the model's: they become `options`."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    name: StrictStr | None = None
    model: StrictStr | None = None
    variant: StrictStr | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    prompt: StrictStr | None = None
    tools: dict[str, StrictBool] = {}
    disable: StrictBool | None = None
    description: StrictStr | None = None
    mode: AgentMode | None = None
    hidden: StrictBool | None = None
    options: dict[str, Any] = {}
    color: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")] | ThemeColor | None = None
    steps: Positive | None = None
    max_steps: Annotated[Positive | None, Field(alias="maxSteps")] = None
    permission: PermissionConfig = {}

    @model_validator(mode="before")
    @classmethod
    def _unknown_to_options(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        unknown = {key: value for key, value in data.items() if key not in _AGENT_KEYS}
        options = data.get("options") or {}
        if not unknown or not isinstance(options, dict):
            return data
        known = {key: value for key, value in data.items() if key in _AGENT_KEYS}
        return {**known, "options": {**options, **unknown}}

    @model_validator(mode="after")
    def _rewrite_legacy(self) -> "AgentConfig":
        if self.tools:
            self.permission = with_legacy_tools(self.permission, self.tools)
        if self.steps is None and self.max_steps is not None:
            self.steps = self.max_steps
        return self


_AGENT_KEYS = set(AgentConfig.model_fields) - {"max_steps"} | {"maxSteps"}


class InterleavedConfig(_Strict):
    field: StrictStr


class PriceConfig(_Section):
    """Dollars a million tokens."""

    input: Number
    output: Number
    cache_read: Number | None = None
    cache_write: Number | None = None


class ModelPriceConfig(PriceConfig):
    context_over_200k: PriceConfig | None = None


class ModelLimitConfig(_Section):
    """Tokens."""

    context: Number
    input: Number | None = None
    output: Number


class ModalitiesConfig(_Section):
    input: list[Modality] | None = None
    output: list[Modality] | None = None


class ModelProviderConfig(_Section):
    npm: StrictStr | None = None
    api: StrictStr | None = None


class VariantConfig(_Open):
    disabled: StrictBool | None = None


class ProviderModelConfig(_Section):
    id: StrictStr | None = None
    name: StrictStr | None = None
    family: StrictStr | None = None
    release_date: StrictStr | None = None
    attachment: StrictBool | None = None
    reasoning: StrictBool | None = None
    temperature: StrictBool | None = None
    tool_call: StrictBool | None = None
    interleaved: StrictBool | StrictStr | InterleavedConfig | None = None
    cost: ModelPriceConfig | None = None
    limit: ModelLimitConfig | None = None
    modalities: ModalitiesConfig | None = None
    experimental: StrictBool | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    options: dict[str, Any] = {}
    headers: StringMap = {}
    provider: ModelProviderConfig | None = None
    variants: dict[str, VariantConfig] = {}


class ProviderOptions(_Open):
    """`chunk_timeout`, else `timeout`: milliseconds without data; false: no limit. Other keys go to the adapter as they are."""

    api_key: Annotated[StrictStr | None, Field(alias="apiKey")] = None
    base_url: Annotated[StrictStr | None, Field(alias="baseURL")] = None
    enterprise_url: Annotated[StrictStr | None, Field(alias="enterpriseUrl")] = None
    headers: StringMap | None = None
    set_cache_key: Annotated[StrictBool | None, Field(alias="setCacheKey")] = None
    timeout: Positive | Literal[False] | None = None
    header_timeout: Annotated[Positive | Literal[False] | None, Field(alias="headerTimeout")] = None
    chunk_timeout: Annotated[Positive | Literal[False] | None, Field(alias="chunkTimeout")] = None


class ProviderConfig(_Strict):
    api: StrictStr | None = None
    name: StrictStr | None = None
    env: Strings | None = None
    id: StrictStr | None = None
    npm: StrictStr | None = None
    models: dict[str, ProviderModelConfig] = {}
    whitelist: Strings | None = None
    blacklist: Strings | None = None
    options: ProviderOptions = Field(default_factory=ProviderOptions)


class McpOAuthConfig(_Strict):
    client_id: Annotated[StrictStr | None, Field(alias="clientId")] = None
    client_secret: Annotated[StrictStr | None, Field(alias="clientSecret")] = None
    scope: StrictStr | None = None
    callback_port: Annotated[StrictInt | None, Field(alias="callbackPort", ge=1, le=65535)] = None
    redirect_uri: Annotated[StrictStr | None, Field(alias="redirectUri")] = None


class McpEnabledConfig(_Strict):
    """A switch for a server that another layer describes."""

    enabled: StrictBool


class McpLocalConfig(_Strict):
    """`timeout` is milliseconds; `cwd` is in the directory or its checkout."""

    type: Literal["local"]
    command: Annotated[Strings, Field(min_length=1)]
    cwd: StrictStr | None = None
    environment: StringMap = {}
    enabled: StrictBool | None = None
    timeout: Positive | None = None


class McpRemoteConfig(_Strict):
    """`timeout` is milliseconds; `oauth: false` turns its detection off."""

    type: Literal["remote"]
    url: StrictStr
    enabled: StrictBool | None = None
    headers: StringMap = {}
    oauth: McpOAuthConfig | Literal[False] | None = None
    timeout: Positive | None = None


def _mcp_kind(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(getattr(entry, "type", "enabled"))
    return str(entry.get("type", "enabled"))


McpConfig = Annotated[
    Annotated[McpLocalConfig, Tag("local")]
    | Annotated[McpRemoteConfig, Tag("remote")]
    | Annotated[McpEnabledConfig, Tag("enabled")],
    Discriminator(
        _mcp_kind, custom_error_type="mcp_type", custom_error_message="an MCP server needs the type `local` or `remote`"
    ),
]


class FormatterConfig(_Section):
    disabled: StrictBool | None = None
    command: Strings | None = None
    environment: StringMap = {}
    extensions: Strings | None = None


class LspConfig(_Section):
    command: Strings | None = None
    extensions: Strings | None = None
    disabled: StrictBool | None = None
    env: StringMap = {}
    initialization: dict[str, Any] = {}

    @model_validator(mode="after")
    def _needs_command(self) -> "LspConfig":
        if self.command is None and not self.disabled:
            raise ValueError("a language server needs a `command`, or `disabled: true`")
        return self


class HookConfig(_Section):
    command: Strings
    environment: StringMap = {}


class HooksConfig(_Section):
    file_edited: dict[str, list[HookConfig]] = {}
    session_completed: list[HookConfig] = []


class PolicyConfig(_Strict):
    """Whether a provider may be used; `resource` is its id, or a pattern of ids. The last that matches decides."""

    action: Literal["provider.use"]
    effect: Literal["allow", "deny"]
    resource: StrictStr


class ExperimentalConfig(_Section):
    """`mcp_timeout` is milliseconds."""

    hook: HooksConfig | None = None
    chat_max_retries: Annotated[Number | None, Field(alias="chatMaxRetries")] = None
    disable_paste_summary: StrictBool | None = None
    batch_tool: StrictBool | None = None
    open_telemetry: Annotated[StrictBool | None, Field(alias="openTelemetry")] = None
    primary_tools: Strings = []
    continue_loop_on_deny: StrictBool | None = None
    mcp_timeout: Positive | None = None
    policies: list[PolicyConfig] = []


class CompactionConfig(_Section):
    """`reserved`: tokens of the window that a request leaves free."""

    auto: StrictBool | None = None
    prune: StrictBool | None = None
    tail_turns: NotNegative | None = None
    preserve_recent_tokens: NotNegative | None = None
    reserved: NotNegative | None = None


class SkillsConfig(_Strict):
    """`paths`: more folders of skills, relative to the directory."""

    paths: Strings = []
    urls: Strings = []


class LocalReferenceConfig(_Section):
    path: StrictStr
    description: StrictStr | None = None
    hidden: StrictBool | None = None


class GitReferenceConfig(_Section):
    repository: StrictStr
    branch: StrictStr | None = None
    description: StrictStr | None = None
    hidden: StrictBool | None = None


References = dict[str, StrictStr | GitReferenceConfig | LocalReferenceConfig]


class ImageAttachmentConfig(_Strict):
    auto_resize: StrictBool | None = None
    max_width: Positive | None = None
    max_height: Positive | None = None
    max_base64_bytes: Positive | None = None


class AttachmentConfig(_Strict):
    image: ImageAttachmentConfig | None = None


class ToolOutputConfig(_Strict):
    """What a tool's output may have before it is truncated for the model."""

    max_lines: Positive | None = None
    max_bytes: Positive | None = None


class WatcherConfig(_Section):
    ignore: Strings = []


class EnterpriseConfig(_Section):
    url: StrictStr | None = None


def _share_mode(value: Any) -> Any:
    """Early configurations used a boolean."""
    return {True: "auto", False: "manual"}[value] if isinstance(value, bool) else value


def _plugin_name(value: Any) -> Any:
    """OpenCode also takes a name with options."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else value


def _require_plugin(name: str) -> str:
    _require_word(unquote(name))  # a `file://` address
    urlsplit(name)  # raises ValueError for one that cannot be read
    return name


def _require_place(name: str) -> str:
    if not name.startswith(("/", "~/")):
        raise ValueError(f"{name!r} is no absolute path: it starts with `/` or `~/`")
    return name


class SandboxConfig(_Strict):
    """What commands reach besides the project, if they run in a sandbox. `network: false` leaves a loopback of their own."""

    model_config = ConfigDict(frozen=True)

    network: StrictBool | None = None
    read: list[Annotated[ConfigWord, AfterValidator(_require_place)]] = []
    write: list[Annotated[ConfigWord, AfterValidator(_require_place)]] = []


class Config(_Strict):
    schema_url: Annotated[StrictStr | None, Field(alias="$schema")] = None
    theme: StrictStr | None = None
    keybinds: KeybindsConfig = {}
    shell: StrictStr | None = None
    log_level: Annotated[LogLevel | None, Field(alias="logLevel")] = None
    tui: TuiConfig | None = None
    server: ServerConfig = Field(default_factory=ServerConfig)
    command: dict[str, CommandConfig] = {}
    skills: SkillsConfig = Field(default_factory=SkillsConfig)
    references: References = {}
    reference: References = {}
    watcher: WatcherConfig = Field(default_factory=WatcherConfig)
    plugin: list[Annotated[StrictStr, BeforeValidator(_plugin_name), AfterValidator(_require_plugin)]] = []
    snapshot: StrictBool | None = None
    share: Annotated[Literal["manual", "auto", "disabled"] | None, BeforeValidator(_share_mode)] = None
    autoshare: StrictBool | None = None
    autoupdate: StrictBool | Literal["notify"] | None = None
    disabled_providers: Strings = []
    enabled_providers: Strings | None = None
    model: StrictStr | None = None
    small_model: StrictStr | None = None
    default_agent: StrictStr | None = None
    subagent_depth: NotNegative | None = None
    username: StrictStr | None = None
    mode: dict[str, AgentConfig] = {}
    agent: dict[str, AgentConfig] = {}
    provider: dict[str, ProviderConfig] = {}
    mcp: dict[str, McpConfig] = {}
    formatter: StrictBool | dict[str, FormatterConfig] | None = None
    lsp: StrictBool | dict[str, LspConfig] | None = None
    instructions: Strings = []
    layout: LayoutConfig | None = None
    permission: PermissionConfig = {}
    tools: dict[str, StrictBool] = {}
    attachment: AttachmentConfig | None = None
    enterprise: EnterpriseConfig = Field(default_factory=EnterpriseConfig)
    tool_output: ToolOutputConfig = Field(default_factory=ToolOutputConfig)
    compaction: CompactionConfig = Field(default_factory=CompactionConfig)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    experimental: ExperimentalConfig = Field(default_factory=ExperimentalConfig)
