"""The commands `opensession user`, `token` and `secret`: who may log in, and the secret that encrypts their keys."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from app.cli.support import fail, failures_as_sentences, settings
from app.users.principal import Role
from app.users.tokens import ServerSecret, TokenNameTaken, TokenStore

if TYPE_CHECKING:
    from app.record.engine import Database
    from app.users.users import User, Users

T = TypeVar("T")

user = typer.Typer(help="The people who use the server.", no_args_is_help=True)
secret = typer.Typer(help="The secret that users' keys are encrypted with.", no_args_is_help=True)
token = typer.Typer(help="Bearer tokens, with which clients log in.", no_args_is_help=True)

_NAME = r"[\w.@:|-]{1,200}"
_TOKEN_NAME = r"[\w.@-]{1,60}"

DayCost = Annotated[float | None, typer.Option(min=0, help="Dollars that their model calls may cost a day.")]
DayTokens = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Tokens that their model calls may take a day.")]


@user.command("add")
def add_user(
    name: Annotated[str, typer.Argument(help="As it stands in the audit log; oidc:SUBJECT for one of the identity provider.")],
    role: Annotated[Role, typer.Option(help="admin: everything; member: their own sessions; viewer: reads everything.")],
    root: Annotated[list[Path] | None, typer.Option(help="A directory that a member works in; may be given again.")] = None,
    max_cost: DayCost = None,
    max_tokens: DayTokens = None,
) -> None:
    """Add a user. From now on every request to the server needs a login."""
    from app.users.users import User, UserNameTaken

    if not re.fullmatch(_NAME, name):
        fail("A user's name may have up to 200 letters, digits and . _ @ : | -")
    new = User(name, role, _roots(root, role), max_cost=max_cost, max_tokens=max_tokens)
    _tokens().require_login()
    try:
        _run(lambda users: users.add(new))
    except UserNameTaken:
        fail(f"There is a user {name} already: `opensession user set` changes them.")


@user.command("set")
def change_user(
    name: str,
    role: Annotated[Role | None, typer.Option(help="Another role.")] = None,
    root: Annotated[list[Path] | None, typer.Option(help="In place of the roots that there are; may be given again.")] = None,
    max_cost: DayCost = None,
    max_tokens: DayTokens = None,
) -> None:
    """Change a user, who keeps their tokens, keys and sessions. What is not named stays."""
    before = _run(_all).get(name)
    if before is None:
        fail(f"There is no user {name}.")
    role = role or before.role
    kept_roots = before.roots if role is Role.MEMBER else ()
    changed = replace(
        before,
        role=role,
        roots=_roots(root, role) if root else kept_roots,
        max_cost=before.max_cost if max_cost is None else max_cost,
        max_tokens=before.max_tokens if max_tokens is None else max_tokens,
    )
    _run(lambda users: users.change(changed))


def _roots(named: list[Path] | None, role: Role) -> tuple[str, ...]:
    if named and role is not Role.MEMBER:
        fail("Only members have roots: an admin works everywhere, a viewer sees everything.")
    return tuple(_directory(path) for path in named or ())


def _directory(path: Path) -> str:
    real = path.expanduser().resolve()
    if not real.is_dir():
        fail(f"There is no directory {path}.")
    checkout = next((above for above in real.parents if (above / ".git").exists()), None)
    if checkout:
        fail(f"{path} is part of the checkout {checkout}, whose other files commands and snapshots work with too: name that.")
    return str(real)


@user.command("list")
def list_users() -> None:
    """The users with their roles, roots and limits."""
    for each in _run(_all).values():
        limits = [f"{each.max_cost:g} dollars a day"] if each.max_cost is not None else []
        limits += [f"{each.max_tokens} tokens a day"] if each.max_tokens is not None else []
        typer.echo("\t".join([each.name, each.role.value, f"added {_day(each.created)}", *each.roots, *limits]))


async def _all(users: "Users") -> "dict[str, User]":
    return dict(await users.all())


@user.command("remove")
def remove_user(name: str) -> None:
    """Remove a user with their tokens, keys and webhooks. Their sessions stay: admins see them and can give them away."""
    _tokens().revoke_all_of(name)
    if not _run(lambda users: users.remove(name)):
        fail(f"There is no user {name}.")


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the token is for; it stands in the audit log.")],
    user: Annotated[str | None, typer.Option(help="Whose it is; without, it may do everything.")] = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=36_500, help="Days for which it holds; without, until it is revoked.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It may read, and change nothing.")] = False,
) -> None:
    """Make a token and print it: this once, only its hash is kept. From now on every request to the server needs a login."""
    if not re.fullmatch(_TOKEN_NAME, name):
        fail("A token's name may have up to 60 letters, digits and . _ @ -")
    if user is not None and user not in _run(_all):
        fail(f"There is no user {user}: add them with `opensession user add`.")
    lifetime = days * 24 * 3600 * 1000 if days else None
    try:
        made = _tokens().create(name, lifetime, user=user, read_only=read_only)
    except TokenNameTaken:
        fail(f"There is a token {name} already: revoke it first, or choose another name.")
    typer.echo(made)


@token.command("list")
def list_tokens() -> None:
    """The names of the tokens, whose they are, and how long they hold."""
    for entry in TokenStore(settings().data_dir).entries():
        whose = [f"user {entry.user}"] if entry.user else []
        whose += ["read-only"] if entry.read_only else []
        typer.echo("\t".join([entry.name, f"made {_day(entry.created)}", _until(entry.expires, entry.is_valid()), *whose]))


def _until(expires: int | None, holds: bool) -> str:
    if expires is None:
        return "until revoked"
    return f"{'until' if holds else 'expired'} {_day(expires)}"


def _day(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).date().isoformat()


@token.command("revoke")
def revoke_token(name: str) -> None:
    """Take a token back, at once; open event streams end with their next heartbeat."""
    if not _tokens().revoke(name):
        fail(f"There is no token {name}.")


@secret.command("rotate")
def rotate_secret() -> None:
    """Encrypt users' keys, and the secrets of webhooks, with a new secret: the first of OPENSESSION_SECRET_KEY, else one that is
    made now. Servers may run meanwhile."""
    from cryptography.fernet import InvalidToken

    held = ServerSecret(settings().secret_key, _data_dir())
    if held.is_in_file:
        held.add_key()
    try:
        count = _on_database(lambda database: _encrypt_anew(database, held))
    except InvalidToken:
        fail("A key is encrypted with another secret: OPENSESSION_SECRET_KEY must name the old one too (`new,old`).")
    if held.is_in_file:
        held.drop_old_keys()
    typer.echo(f"{count} keys are encrypted with the new secret.")


async def _encrypt_anew(database: "Database", held: ServerSecret) -> int:
    from app.record.repositories import webhook_rows
    from app.users.accounts import UserKeys

    def rotate(secret: str) -> str:
        return held.box().rotate(secret.encode()).decode()

    keys = await UserKeys(database, held).encrypt_anew()
    return keys + await database.write(lambda connection: webhook_rows.encrypt_anew(connection, rotate))


def _tokens() -> TokenStore:
    return TokenStore(_data_dir())


def _data_dir() -> Path:
    """The data directory, after checking that it can be written."""
    from app.record.engine import require_writable

    found = settings().data_dir
    with failures_as_sentences():
        require_writable(found)
    return found


def _run(work: "Callable[[Users], Coroutine[Any, Any, T]]") -> T:
    from app.users.users import Users

    return _on_database(lambda database: work(Users(database)))


def _on_database(work: "Callable[[Database], Coroutine[Any, Any, T]]") -> T:
    """Works on the server's database; the embedded one is made or migrated first."""
    from app.transfer.backup.placing import open_database

    with failures_as_sentences(), closing(open_database(settings())) as database:
        return asyncio.run(work(database))
