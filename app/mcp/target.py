"""What is needed to connect to one configured server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from app.mcp.credentials import CredentialStore
from app.mcp.sign_in import SignIn
from app.sandbox.sandbox import Sandbox
from app.sandbox.scope import SandboxWorkspace
from app.schema.config import McpLocalConfig, McpRemoteConfig
from app.util.secrets import secrets_of, words_of_secrets

McpServerConfig = McpLocalConfig | McpRemoteConfig


@dataclass(frozen=True)
class McpTarget:
    """A program is started in the sandbox of `workspace` with `environment` and what its own configuration adds.
    With a `sign_in` a remote server may ask the user to sign in; without one it is only tried with what is stored."""

    name: str
    config: McpServerConfig
    workspace: SandboxWorkspace
    environment: Mapping[str, str]
    sandbox: Sandbox
    credentials: CredentialStore
    sign_in: SignIn | None = None

    def secrets(self) -> list[str]:
        """What its configuration has and an error may quote, but not tell."""
        match self.config:
            case McpLocalConfig(command=command, environment=environment):
                return [*secrets_of(environment, headers=True), *words_of_secrets(command)]
            case McpRemoteConfig():
                return list(secrets_of(self.config.layer()))


def takes_sign_in(config: McpServerConfig) -> TypeGuard[McpRemoteConfig]:
    """Not where the configuration turns it off or brings a key of its own."""
    if not isinstance(config, McpRemoteConfig) or config.oauth is False:
        return False
    return "authorization" not in {header.lower() for header in config.headers}
