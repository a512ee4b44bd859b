"""The request to a model and the events that it streams back, the same for every provider.

An adapter translates a wire format at the edge: `ModelRequest` in, `StreamEvent`s out, failures as `ProviderFailure`.
Order within one stream: StreamStart, then text, reasoning and tool events (each block Start … Delta … End; a tool's
ToolInputStart, then ToolCall or InvalidToolCall), then exactly one Finish. If the provider cuts the stream short, the adapter
ends the open blocks and returns without a Finish.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from app.schema.model import Model

Metadata = dict[str, Any]
"""Private data of a provider that must be sent back with its block (a reasoning signature, an encrypted item id), keyed by
adapter: `{"anthropic": {"signature": …}}`."""
Medium = Literal["image", "pdf", "audio", "video"]
_NAMED_MEDIA: tuple[Medium, ...] = ("image", "audio", "video")


class Npm(StrEnum):
    """The packages by which OpenCode's configuration and models.dev name an adapter."""

    OPENAI_COMPATIBLE = "@ai-sdk/openai-compatible"
    OPENAI = "@ai-sdk/openai"
    ANTHROPIC = "@ai-sdk/anthropic"
    GOOGLE = "@ai-sdk/google"
    OPENROUTER = "@openrouter/ai-sdk-provider"
    SCRIPTED = "scripted"


# The request.


@dataclass(frozen=True, slots=True)
class TextBlock:
    text: str
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class FileBlock:
    """`url` is a `data:` URL or an http(s) URL."""

    mime: str
    url: str
    filename: str | None = None

    @property
    def medium(self) -> Medium | None:
        if self.mime == "application/pdf":
            return "pdf"
        return next((kind for kind in _NAMED_MEDIA if self.mime.startswith(f"{kind}/")), None)

    @property
    def inline(self) -> str | None:
        """The content of a `data:` URL, in base64; None for any other URL."""
        return self.url.partition(",")[2] if self.url.startswith("data:") else None

    @property
    def unsendable(self) -> str:
        """The text that replaces a file that the wire format cannot carry."""
        name = self.filename or ("a file" if self.url.startswith("data:") else self.url)
        return f"[{name} ({self.mime}) was attached, but this kind of file can't be sent to the model.]"


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    text: str
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class CallIdentity:
    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class ToolCallBlock(CallIdentity):
    input: dict[str, Any]
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class ToolResultBlock(CallIdentity):
    text: str
    is_error: bool = False
    files: tuple[FileBlock, ...] = ()


UserBlock = TextBlock | FileBlock
AnswerBlock = TextBlock | ReasoningBlock | ToolCallBlock
Block = UserBlock | AnswerBlock | ToolResultBlock


@dataclass(frozen=True, slots=True)
class UserTurn:
    content: tuple[UserBlock, ...]
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    content: tuple[AnswerBlock, ...]
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """The results of all calls of the preceding assistant turn."""

    content: tuple[ToolResultBlock, ...]
    role: Literal["tool"] = "tool"


ModelMessage = UserTurn | AssistantTurn | ToolTurn


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`parameters` is a JSON schema of type object."""

    id: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """`options` are the merged provider options of the call (app.providers.options), in OpenCode's names:
    `reasoningEffort`."""

    model: Model
    system: tuple[str, ...]
    messages: tuple[ModelMessage, ...]
    session_id: str
    tools: tuple[ToolSpec, ...] = ()
    requires_tool: bool = False
    """The model may not answer by text alone, if the API can demand that."""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def system_in_one(self) -> tuple[str, ...]:
        """`system` as at most one text, for APIs behind which are models whose chat template takes one system message."""
        texts = [text for text in self.system if text]
        return ("\n\n".join(texts),) if texts else ()


# The stream.


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The provider has accepted the request and starts to answer."""


BlockKind = Literal["text", "reasoning"]


@dataclass(frozen=True, slots=True)
class BlockStart:
    kind: BlockKind
    id: str
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class BlockDelta:
    kind: BlockKind
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """`metadata` replaces that of the start: a signature arrives last."""

    kind: BlockKind
    id: str
    metadata: Metadata | None = None


class ToolInputStart(CallIdentity): ...


@dataclass(frozen=True, slots=True)
class ToolCall(CallIdentity):
    input: dict[str, Any]
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class InvalidToolCall(CallIdentity):
    """The streamed arguments of a call are not a JSON object. `raw` is the text, `error` the reason."""

    raw: str
    error: str


FinishReason = Literal["stop", "length", "tool-calls", "content-filter", "error", "unknown"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `input` excludes cache reads and writes; `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason
    usage: Usage
    metadata: Metadata | None = None


BlockOrCall = StreamStart | BlockStart | BlockEnd | ToolInputStart | ToolCall | InvalidToolCall | Finish
"""Events of a stream, without deltas."""

StreamEvent = BlockOrCall | BlockDelta


SendRequest = Callable[[ModelRequest], AsyncGenerator[StreamEvent, None]]
"""Sends a request to a model; the events are its answer."""


class Provider(Protocol):
    """One connection to a provider: an adapter with its key, base URL and headers."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Sends one request, without retries: `retry.py` decides those. Raises a ProviderFailure. Closing the generator or
        cancelling the task that reads it closes the connection."""
        ...

    async def close(self) -> None: ...


# Failures.


class ProviderFailure(Exception):
    """
    ProviderFailure
    ├── ApiFailure           the provider answered with an error, or the connection broke
    │   ├── ContextOverflow  the conversation is longer than the model takes
    │   └── AnswerTooLarge   the answer passed a limit on what is taken of one
    ├── MissingKey           no key is configured for the provider
    ├── NoAddress            no address is known of the provider
    └── UnusableOption       the configuration holds an option that the provider's API cannot be sent
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ApiFailure(ProviderFailure):
    """`status` is None without an HTTP answer; `retryable`: the same request may succeed later (app.providers.errors)."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        headers: dict[str, str] | None = None,
        body: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.headers = headers
        self.body = body
        self.metadata = metadata


class ContextOverflow(ApiFailure):
    """Never retryable: only a shorter request can succeed."""


class AnswerTooLarge(ApiFailure):
    """Never retryable, and ends the turn whichever part of the answer has been acted upon."""


class UnusableOption(ProviderFailure):
    def __init__(self, name: str, wanted: str, value: Any) -> None:
        super().__init__(
            f"The option `{name}` of the model, the agent or the variant must be {wanted}, but the configuration says {value!r}."
        )


class NoAddress(ProviderFailure):
    def __init__(self, provider_id: str) -> None:
        super().__init__(
            f"The provider {provider_id} has no address: set options.baseURL to a server that speaks OpenAI's Chat Completions"
        )


class MissingKey(ProviderFailure):
    def __init__(self, provider_id: str) -> None:
        super().__init__(f"No API key for the provider {provider_id}: set its environment variable or options.apiKey")
        self.provider_id = provider_id
