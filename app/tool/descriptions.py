"""The descriptions of the tools for the model: `descriptions/<tool id>.txt`."""

from functools import cache
from importlib import resources


@cache
def load(tool_id: str) -> str:
    return resources.files("app.tool").joinpath("descriptions", f"{tool_id}.txt").read_text("utf-8").strip()
