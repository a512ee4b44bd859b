"""Ends what runs for users who may not do it any more: they were removed, may only read now, or lost the roots it runs in."""

import logging
from collections.abc import Mapping

from app.record.repositories import session_rows
from app.sessions.live import LiveSessions
from app.users.login import Login
from app.users.users import User, Users
from app.util.project_files import resolved
from app.util.tasks import TaskSet
from app.workspace.terminals.terminals import Terminals
from app.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)


class UserChanges:
    def __init__(self, users: Users, login: Login, workspaces: Workspaces, live: LiveSessions, terminals: Terminals) -> None:
        self._users = users
        self._login = login
        self._workspaces = workspaces
        self._live = live
        self._terminals = terminals
        self._tasks = TaskSet()
        self._unfollowed: list[Mapping[str, User]] = []
        """The users before each change."""
        users.on_change = self._unfollowed.append

    async def poll(self) -> None:
        """Call it each second: a change is seen when the users are read."""
        if self._users.exist() or self._unfollowed:
            await self._users.all()
        for before in list(self._unfollowed):
            now, writing = await self._users.all(), set(self._login.writing)
            await self._follow(before, now)
            if not any(before[name] != now.get(name) for name in writing & before.keys()):
                self._unfollowed.remove(before)

    async def _follow(self, before: Mapping[str, User], now: Mapping[str, User]) -> None:
        """Aborts turns and shell lines, whose answers say so, and removes terminals, on this server. A change counts until the
        requests of its users have ended: afterwards an admin may work in the sessions of a removed user."""
        owners = await self._live.store.query(session_rows.owners, list(self._live.at_work))
        for live in list(self._live.at_work.values()):
            user = before.get(owners.get(live.id, ""))
            if user and any(self._is_over(user, now.get(user.name), work.directory) for work in live.works):
                log.warning("what runs in %s is aborted: its user %s may not do it any more", live.id, user.name)
                self._tasks.start(self._live.abort(live.id), f"abort {live.id}")
        ended = self._terminals.end_where(
            lambda each: each.owner in before and self._is_over(before[each.owner], now.get(each.owner), each.directory)
        )
        self._tasks.start(ended, "end the terminals of changed users")

    def _is_over(self, before: User, now: User | None, directory: str) -> bool:
        """Whether what the user runs in the directory may not go on."""
        if now is None or (before.principal().may_write and not now.principal().may_write):
            return True
        return not self._workspaces.admits(now.principal(), resolved(directory))
