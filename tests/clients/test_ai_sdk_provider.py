"""The AI SDK with its community provider for OpenCode (npm `ai-sdk-provider-opencode-sdk`): structured answers."""

import json
import subprocess
from pathlib import Path
from typing import Any

from running_server import RunningServer

PARIS = {"city": "Paris", "people": 2_100_000, "rivers": ["Seine"]}
ROME = {"city": "Rome", "people": 2_700_000, "rivers": ["Tiber"]}


def answering(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"tool": "StructuredOutput", "args": fields}]


SCRIPT = [
    answering({**PARIS, "people": "many"}),
    answering(PARIS),
    answering(ROME),
    *([{"text": "I know no city."}] for _ in range(3)),
]
"""A wrong answer and its correction, an answer to a stream, and a model that answers by text whatever it is told."""


def test_structured_answers_come_as_objects_and_their_lack_as_an_error(server: RunningServer, node_modules: Path) -> None:
    result = subprocess.run(
        ["node", "ai_sdk_provider.mjs", server.base], cwd=node_modules, capture_output=True, text=True, timeout=180
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert (seen["generated"], seen["streamed"]) == (PARIS, ROME)
    assert "NoObjectGenerated" in seen["failed"]["error"]
