"""Settings of the process, from the environment. A project's own configuration is `opencode.json` (config/)."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.util import environment

PREFIX = "OPENSESSION_"
_NO_SETTINGS = re.compile(rf"{PREFIX}(TOKEN|URL|RUN|INSIDE_.*|PORT|PORT_.*|SERVICE_.*)")
"""Variables that begin alike: those of clients and of programs that servers start, and what Kubernetes sets for a service of this
name."""
LOOPBACK_ORIGINS = "loopback"
_REDIS_SCHEMES = ("redis", "rediss", "unix")
_MAX_SECONDS = 1e9
"""The longest time that a timer takes."""


class Settings(BaseSettings):
    """Each field is `OPENSESSION_<FIELD>` in the environment; the docstrings stand in the table of docs/configuration.md.
    An empty variable, as Compose passes on, counts as not set."""

    model_config = SettingsConfigDict(
        env_prefix="opensession_", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True, allow_inf_nan=False
    )

    data_dir: Path = Field(default_factory=lambda: environment.data_home() / "opensession")
    """Where the database, snapshots, tool outputs and keys are kept (default `$XDG_DATA_HOME/opensession`)."""

    database_url: str | None = None
    """SQLAlchemy URL of the database; default SQLite `opensession.db` in the data directory."""

    redis_url: str | None = None
    """Redis that carries events between servers of one PostgreSQL (`redis://host:6379/0`); without it they read the database."""

    roots: str = ""
    """More directories that clients may work in, separated by `:`; the server's own directory and worktree always are."""

    public_url: str | None = None
    """The address people reach the server by, when it is not the one it binds to; its host is accepted in `Host`."""

    cors_origins: str = ""
    """Web origins that may call the server from a browser, separated by commas: exact (`https://app.example.com`), or `loopback`
    for every page of this machine (`http://localhost:3000`, `127.0.0.1`, `[::1]`)."""

    script: Path | None = None
    """A JSON file of turns for the scripted provider to play, for tests of clients."""

    allow_private_addresses: bool = False
    """Let the webfetch tool reach loopback and private addresses (default no: pages could name the network's own services)."""

    webhook_private_addresses: bool = False
    """Let webhooks reach loopback and private addresses (default no: users could call the network's own services)."""

    max_webhooks: int = Field(default=20, ge=0)
    """Webhooks that each user may have (default 20; 0 for none)."""

    sandbox: Literal["auto", "require", "off"] = "auto"
    """Run commands and local MCP servers in a sandbox: `auto` where it works, `require` or do not start, `off` (default auto)."""

    terminals: bool = True
    """Let clients open terminals, which run what is typed (`on`, the default, or `off`)."""

    max_terminals: int = Field(default=20, ge=0)
    """Terminals that each user may have at once (default 20); without users, that the server has."""

    project_plugins: bool = False
    """Run Python plugins and tools that projects bring (default no: whoever wrote a project would run code in this server)."""

    shutdown_seconds: float = Field(default=7, ge=0, le=_MAX_SECONDS)
    """Seconds that running turns may take to finish when the server is told to stop (default 7); then they are interrupted."""

    interrupted: Literal["continue", "settle"] = "continue"
    """What becomes of a turn whose server stopped or died: another server, or the next start, goes on with it (`continue`, the
    default) or ends it with an error (`settle`)."""

    max_body_bytes: int = Field(default=32 * 1024 * 1024, gt=0)
    """Bytes that the body of a request may have (default 32 MiB); a larger one is answered with 413."""

    max_import_bytes: int = Field(default=256 * 1024 * 1024, gt=0)
    """Bytes that an imported document may have (default 256 MiB); a larger one is answered with 413."""

    max_part_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    """Bytes that one part of a message may have when a client sends it (default 16 MiB); a larger one is answered with 413. An
    answer of a model may have as many, 8 MiB at most."""

    max_head_bytes: int = Field(default=64 * 1024, gt=0)
    """Bytes that a request's address and headers may have together (default 64 KiB); more are answered with 414 or 431."""

    max_connections: int = Field(default=700, gt=0)
    """Connections at once (default 700); requests on more are answered with 503. Each takes a file descriptor (`ulimit -n`)."""

    max_event_streams: int = Field(default=300, gt=0)
    """Event streams at once (default 300); more are answered with 429."""

    max_waiting_prompts: int = Field(default=100, gt=0)
    """Prompts of one session that may wait for their answer (default 100); more are answered with 429 and not stored."""

    max_running_sessions: int = Field(default=100, gt=0)
    """Sessions that are answered at once (default 100). Prompts to others are accepted and wait for their turn."""

    max_project_bytes: int = Field(default=20 * 1024**3, gt=0)
    """Bytes that the messages of one project's sessions may take (default 20 GiB); then prompts and forks get a 507."""

    max_snapshot_bytes: int = Field(default=10 * 1024**3, gt=0)
    """Bytes that one checkout's snapshots may take (default 10 GiB). Then old ones go early, and new steps have none."""

    max_journal_bytes: int = Field(default=256 * 1024**2, gt=0)
    """Bytes of events that are kept for clients that come back (default 256 MiB), besides 10,000 events and 24 hours."""

    retention_days: float | None = Field(default=None, gt=0)
    """Days after which sessions that nobody has used, shared or pinned are deleted (default: never)."""

    idle_seconds: float = Field(default=1800, gt=0)
    """Seconds after which a directory that nobody uses is closed, with all that was loaded of it (default 1800)."""

    oidc_issuer: str | None = None
    """Identity provider (OpenID Connect) whose bearer tokens are a login: its issuer, `https://login.example.com/realms/work`."""

    oidc_audience: str | None = None
    """The audience (`aud`) that those tokens must be for."""

    oidc_role_claim: str | None = None
    """Their claim that says `admin`, `member` or `viewer` (`realm_access.roles`); without this setting everybody is a member."""

    secret_key: str | None = None
    """Encrypts users' keys (`new,old` while one takes the place of another); default: in `secret.json` in the data directory."""

    shared_keys: bool | None = None
    """Whether users' sessions may call models with the server's keys where they have none (default: those of admins)."""

    user_max_cost: float | None = Field(default=None, ge=0)
    """Dollars that the model calls of a user may cost a day, unless `opensession user` sets another limit (default: no limit)."""

    user_max_tokens: int | None = Field(default=None, ge=0)
    """Tokens that the model calls of a user may take a day, unless `opensession user` sets another limit (default: no limit)."""

    metrics: bool = False
    """Count what the server does, and answer `GET /metrics` for Prometheus (default no)."""

    log_format: Literal["text", "json"] = "text"
    """How the log is written: `text`, or `json`, an object a line (default text; `opensession serve --log-format` too)."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged: `debug`, `info`, `warning` or `error` (default info; `opensession serve --log-level` too)."""

    prompt_rate: str | None = None
    """Prompts that each user and each login may send: `30/minute`, `200/hour` (default: no limit); more get a 429."""

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_small_letters(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level

    @field_validator("prompt_rate")
    @classmethod
    def _require_rate(cls, rate: str | None) -> str | None:
        if not rate:
            return None
        if not re.fullmatch(r"[1-9]\d*/(second|minute|hour|day)", rate):
            raise ValueError("must be a number and second, minute, hour or day: 30/minute")
        return rate

    @field_validator("redis_url")
    @classmethod
    def _require_redis(cls, url: str | None) -> str | None:
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme not in _REDIS_SCHEMES or not (parts.hostname or parts.scheme == "unix"):
            raise ValueError("must be redis://host:port/number, rediss://… (TLS) or unix:///path")
        return url

    @field_validator("public_url", "oidc_issuer")
    @classmethod
    def _require_address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "")
        if url and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("must be an address, https://agent.example.com")
        return url

    @field_validator("cors_origins")
    @classmethod
    def _require_origins(cls, origins: str) -> str:
        """Browsers send no other form, so anything else would allow nothing."""
        for origin in filter(None, map(str.strip, origins.split(","))):
            if origin != LOOPBACK_ORIGINS and not re.fullmatch(r"[\w+.-]+://[^/?#\s*]+", origin):
                raise ValueError(f"{origin} is no origin: https://app.example.com, without a path, or {LOOPBACK_ORIGINS}")
        return origins

    @model_validator(mode="after")
    def _require_audience(self) -> "Settings":
        """Without an audience a token that was issued for any other program would be a login."""
        if self.oidc_issuer and not self.oidc_audience:
            raise ValueError("OPENSESSION_OIDC_ISSUER needs OPENSESSION_OIDC_AUDIENCE too")
        if (self.oidc_audience or self.oidc_role_claim) and not self.oidc_issuer:
            raise ValueError("OPENSESSION_OIDC_AUDIENCE and OPENSESSION_OIDC_ROLE_CLAIM need OPENSESSION_OIDC_ISSUER too")
        return self

    @property
    def root_dirs(self) -> list[Path]:
        return [Path(root) for root in self.roots.split(":") if root]

    @property
    def allowed_origins(self) -> frozenset[str]:
        return frozenset(origin.strip() for origin in self.cors_origins.split(",") if origin.strip()) - {LOOPBACK_ORIGINS}

    @property
    def allows_loopback_origins(self) -> bool:
        return LOOPBACK_ORIGINS in [origin.strip() for origin in self.cors_origins.split(",")]

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'opensession.db'}"


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each variable that looks like a setting and is none, such as a misspelt one."""
    from difflib import get_close_matches

    known = {PREFIX + field.upper() for field in Settings.model_fields}
    for name in sorted(name for name, value in environ.items() if value and name.upper().startswith(PREFIX)):
        if name.upper() not in known and not _NO_SETTINGS.fullmatch(name.upper()):
            similar = get_close_matches(name.upper(), known, 1, 0.8)
            yield f"{name} is no setting, and changes nothing." + (f" Is {similar[0]} meant?" if similar else "")
