"""Settings of the process, from the environment. A project's own configuration is `opencode.json` (config/)."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.util import paths


class Settings(BaseSettings):
    """Each field is `OPENSESSION_<FIELD>` in the environment; the docstrings stand in the README's table."""

    model_config = SettingsConfigDict(env_prefix="OPENSESSION_", extra="ignore", use_attribute_docstrings=True)

    data_dir: Path = Field(default_factory=lambda: paths.data_home() / "opensession")
    """Where the database, snapshots, tool outputs and keys are kept (default `$XDG_DATA_HOME/opensession`)."""

    database_url: str | None = None
    """SQLAlchemy URL of the database; default SQLite `opensession.db` in the data directory."""

    roots: str = ""
    """More directories that clients may work in, separated by `:`; the server's own directory and worktree always are."""

    public_url: str | None = None
    """The address people reach the server by, when it is not the one it binds to; its host is accepted in `Host`."""

    cors_origins: str = ""
    """Web origins that may call the server from a browser, separated by commas, exact (`https://app.example.com`)."""

    script: Path | None = None
    """A JSON file of turns for the scripted provider to play, for tests of clients."""

    allow_private_addresses: bool = False
    """Let the webfetch tool reach loopback and private addresses (default no: pages could name the network's own services)."""

    project_plugins: bool = False
    """Run Python plugins and tools that projects bring (default no: whoever wrote a project would run code in this server)."""

    @property
    def root_dirs(self) -> list[Path]:
        return [Path(root) for root in self.roots.split(":") if root]

    @property
    def allowed_origins(self) -> frozenset[str]:
        return frozenset(origin.strip() for origin in self.cors_origins.split(",") if origin.strip())

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'opensession.db'}"
