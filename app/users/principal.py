"""Who makes a request, and what that lets them see and do. Pure.

    admin   everything
    member  their own sessions, in their roots
    viewer  sees everything, changes nothing

A read-only token lets its user see what they see, and change nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from app.util.project_files import is_below


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Principal:
    """`name` owns what the principal creates. `roots`: resolved directories; none: those of the server. `token`: the hash of the
    token by which they are logged in."""

    name: str
    role: Role
    read_only: bool = False
    roots: tuple[str, ...] = ()
    token: str = field(default="", compare=False, repr=False)

    @property
    def may_see_all(self) -> bool:
        return self.role is not Role.MEMBER

    @property
    def may_write(self) -> bool:
        return not self.read_only and self.role is not Role.VIEWER

    @property
    def may_manage(self) -> bool:
        return not self.read_only and self.role is Role.ADMIN

    @property
    def visible_owner(self) -> str | None:
        """The owner whose sessions the principal sees; None for all."""
        return None if self.may_see_all else self.name

    def may_see(self, owner: str) -> bool:
        return self.may_see_all or (owner != "" and owner == self.name)


OPERATOR = Principal("", Role.ADMIN)
"""For a server without users, for a server's password, and for tokens that belong to no user."""


def highest_role(names: Iterable[object]) -> Role | None:
    found = [name for name in names if isinstance(name, str)]
    return next((role for role in Role if role.value in found), None)


def is_within(path: str, roots: Iterable[str]) -> bool:
    """`path` is resolved."""
    return any(is_below(path, root) for root in roots)


def roots_of(principal: Principal, server_roots: Iterable[str], user_roots: Iterable[str]) -> list[str]:
    """The directories that the principal may work below. `user_roots`: those of all users."""
    return [*server_roots, *user_roots] if principal.may_see_all else [*(principal.roots or server_roots)]


def may_enter(principal: Principal, path: str, server_roots: Iterable[str], user_roots: Iterable[str]) -> bool:
    """Whether the principal may work at a resolved path. A member without roots works where the server does, except in other
    users' roots."""
    if not is_within(path, roots_of(principal, server_roots, user_roots)):
        return False
    return principal.may_see_all or bool(principal.roots) or not is_within(path, user_roots)
