"""What deployments may tell a server."""

from dataclasses import fields

from running_server import ROOT

from app.cli import app
from app.project.config.flags import Flags
from app.settings import Settings

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMMANDS = {command.callback.__name__ for command in app.registered_commands if command.callback}


def is_known(variable: str) -> bool:
    """Whether a server reads it."""
    settings = {f"OPENSESSION_{name.upper()}" for name in Settings.model_fields}
    flags = {f"OPENCODE_{field.name.upper()}" for field in fields(Flags)}
    return variable in settings | flags | {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}
