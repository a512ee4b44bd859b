"""Derives the capabilities of a model from its name.

The price data contains no reasoning, media or output limits, so a table of model families does. The first rule whose pattern is
found in the id applies; any other id is a text model with tools. `opencode.json` overrides all of it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from app.schema.model import Capabilities, InterleavedField, Modalities

Medium = Literal["image", "pdf", "audio", "video"]
_SEEN: tuple[Medium, ...] = ("image", "pdf")
_ALL: tuple[Medium, ...] = ("image", "pdf", "audio", "video")


@dataclass(frozen=True, slots=True)
class Family:
    """`output`: the limit of an answer in tokens. `returns_reasoning`: the API expects its reasoning back in
    `reasoning_content`."""

    pattern: str
    output: int
    reasoning: bool = False
    media: tuple[Medium, ...] = ()
    temperature: bool = True
    tools: bool = True
    returns_reasoning: bool = False

    def capabilities(self) -> Capabilities:
        return Capabilities(
            temperature=self.temperature,
            reasoning=self.reasoning,
            attachment=bool(self.media),
            toolcall=self.tools,
            input=Modalities(**dict.fromkeys(self.media, True)),
            interleaved=InterleavedField(field="reasoning_content") if self.returns_reasoning else False,
        )


FAMILIES = (
    Family(r"claude-3-7|claude-sonnet-3-7", 64_000, reasoning=True, media=_SEEN),
    Family(r"claude-3-5", 8_192, media=_SEEN),
    Family(r"claude-(3|2|v|instant)", 4_096, media=("image",)),
    Family(r"claude-(4-)?opus(-4)?(-[01])?$|claude-opus-4-(0|1|2025)", 32_000, reasoning=True, media=_SEEN),
    Family(r"claude-[a-z]+-(4-[7-9]|[5-9])", 64_000, reasoning=True, media=_SEEN, temperature=False),
    Family(r"claude", 64_000, reasoning=True, media=_SEEN),
    Family(r"gpt-oss", 32_768, reasoning=True),
    Family(r"gpt-\d(-\d)?-chat|gpt-chat|chatgpt", 16_384, media=("image",)),
    Family(r"gpt-([5-9]|\d\d)|codex", 128_000, reasoning=True, media=_SEEN, temperature=False),
    Family(r"(^|/)o[1-9]-mini", 65_536, reasoning=True, temperature=False),
    Family(r"(^|/)o[1-9]", 100_000, reasoning=True, media=_SEEN, temperature=False),
    Family(r"gpt-4-1", 32_768, media=_SEEN),
    Family(r"gpt-4o", 16_384, media=_SEEN),
    Family(r"gpt-4", 4_096),
    Family(r"gemini-(2-5|[3-9])|gemini-(flash|pro)-latest", 65_536, reasoning=True, media=_ALL),
    Family(r"gemini", 8_192, media=_ALL),
    Family(r"gemma-[3-9]", 8_192, media=("image",)),
    Family(r"grok.*non-reasoning", 30_000, media=("image",)),
    Family(r"grok-(4|[5-9])", 64_000, reasoning=True, media=("image",)),
    Family(r"grok-(3-mini|code|build)", 16_384, reasoning=True),
    Family(r"deepseek-reasoner|deepseek-v4", 64_000, reasoning=True, returns_reasoning=True),
    Family(r"deepseek-(r\d|v3-[12])", 32_768, reasoning=True),
    Family(r"kimi-(k2-thinking|k2-[5-9]|k2p[5-9]|k[3-9])", 64_000, reasoning=True, returns_reasoning=True),
    Family(r"glm-(4[-p][5-9]|[5-9]).*v", 32_768, reasoning=True, media=("image",), returns_reasoning=True),
    Family(r"glm-(4[-p][5-9]|[5-9])", 64_000, reasoning=True, returns_reasoning=True),
    Family(r"minimax-m[2-9]", 64_000, reasoning=True),
    Family(r"magistral", 40_000, reasoning=True),
    Family(r"pixtral|mistral-(medium-3|small-3|large-[34])|llama-?4|-vl(-|$)|vision", 8_192, media=("image",)),
    Family(r"qwen-?3.*thinking|qwq", 32_768, reasoning=True),
    Family(r"sonar", 8_192, tools=False),
)
UNKNOWN = Family("", 8_192)

_COMPILED = tuple((re.compile(family.pattern), family) for family in FAMILIES)


def family_of(model_id: str) -> Family:
    """`anthropic/claude-sonnet-4.5` and `claude-sonnet-4-5` are the same family."""
    name = model_id.lower().replace(".", "-")
    return next((family for pattern, family in _COMPILED if pattern.search(name)), UNKNOWN)
