"""Agents, commands and skills; providers, their models and the ways to sign in. Prices are dollars per million tokens, limits are
tokens. 0, or None where a field may be None: unknown."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.schema.base import Wire
from app.schema.part import ModelRef
from app.schema.permission import Ruleset

AgentMode = Literal["subagent", "primary", "all"]


class Agent(Wire):
    name: str
    description: str | None = None
    mode: AgentMode
    native: bool | None = None
    hidden: bool | None = None
    top_p: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: Ruleset
    model: ModelRef | None = None
    variant: str | None = None
    prompt: str | None = None
    options: dict[str, Any] = {}
    steps: int | None = None


class Command(Wire):
    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mcp: bool | None = None
    source: Literal["command", "mcp"] = "command"
    template: str
    subtask: bool | None = None
    hints: list[str] = []


class Skill(Wire):
    """`content`: the skill's text without the frontmatter."""

    name: str
    description: str
    location: str
    content: str


class ModelApi(Wire):
    """`id`: the name in the provider's API. `npm`: the adapter's name in OpenCode's configuration."""

    id: str
    url: str = ""
    npm: str


class Modalities(Wire):
    text: bool = True
    audio: bool = False
    image: bool = False
    video: bool = False
    pdf: bool = False


class InterleavedField(Wire):
    """The field of a message in which the model wants its reasoning back."""

    field: str


class Capabilities(Wire):
    temperature: bool = False
    reasoning: bool = False
    attachment: bool = False
    toolcall: bool = True
    input: Modalities = Field(default_factory=Modalities)
    output: Modalities = Field(default_factory=Modalities)
    interleaved: bool | InterleavedField = False


class CachePrice(Wire):
    read: float = 0
    write: float = 0


class Price(Wire):
    input: float = 0
    output: float = 0
    cache: CachePrice = Field(default_factory=CachePrice)


class CostTier(Wire):
    """A prompt of more than `size` tokens, cached ones included, has the price of the `PriceTier` for all of them."""

    type: Literal["context"] = "context"
    size: int


class PriceTier(Price):
    tier: CostTier


class ModelPrice(Price):
    tiers: list[PriceTier] | None = None
    experimental_over_200k: Annotated[Price | None, Field(alias="experimentalOver200K")] = None


class ModelLimit(Wire):
    context: int = 0
    input: int | None = None
    output: int = 0


class Model(Wire):
    id: str
    provider_id: str
    api: ModelApi
    name: str
    family: str | None = None
    capabilities: Capabilities = Field(default_factory=Capabilities)
    cost: ModelPrice = Field(default_factory=ModelPrice)
    limit: ModelLimit = Field(default_factory=ModelLimit)
    status: Literal["alpha", "beta", "deprecated", "active"] = "active"
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    release_date: Annotated[str, Field(alias="release_date")] = ""
    variants: dict[str, dict[str, Any]] | None = None


class ProviderInfo(Wire):
    id: str
    name: str
    source: Literal["env", "config", "custom", "api"]
    env: list[str] = []
    key: str | None = None
    options: dict[str, Any] = {}
    models: dict[str, Model] = {}


class ProviderAuthMethod(Wire):
    type: Literal["oauth", "api"]
    label: str


class OAuth(Wire):
    type: Literal["oauth"] = "oauth"
    refresh: str
    access: str
    expires: float
    account_id: Annotated[str | None, Field(alias="accountId")] = None
    enterprise_url: str | None = None


class ApiAuth(Wire):
    """`metadata` is kept with the key. The second API shows its `label`."""

    type: Literal["api"] = "api"
    key: str
    metadata: dict[str, str] | None = None


class WellKnownAuth(Wire):
    """A login at an organisation: `token` is its value of the environment variable `key`, which the configuration may name."""

    type: Literal["wellknown"] = "wellknown"
    key: str
    token: str


Auth = Annotated[OAuth | ApiAuth | WellKnownAuth, Field(discriminator="type")]
