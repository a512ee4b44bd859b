"""Approvals that replies of `always` have stored, for the clients that list and delete them."""

import base64
import binascii
from dataclasses import dataclass

import orjson

from app.storage.engine import Database
from app.storage.repositories import directory_rows
from app.storage.statements import statements

PREFIX = "psv_"


def scope_of(project_id: str, owner: str) -> str:
    """What an approval is stored for: a project, of one user where there are users."""
    return f"{project_id} {owner}" if owner else project_id


@dataclass(frozen=True, slots=True)
class SavedApproval:
    """`scope` as `scope_of` makes it."""

    scope: str
    permission: str
    pattern: str

    @property
    def id(self) -> str:
        """Names it and nothing else: it is no row of its own."""
        packed = base64.urlsafe_b64encode(orjson.dumps([self.scope, self.permission, self.pattern]))
        return PREFIX + packed.decode().rstrip("=")

    @classmethod
    def of_id(cls, saved_id: str) -> "SavedApproval | None":
        packed = saved_id.removeprefix(PREFIX)
        try:
            match orjson.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))):
                case [str(scope), str(permission), str(pattern)]:
                    return cls(scope, permission, pattern)
        except (binascii.Error, ValueError):
            pass
        return None

    @property
    def project_id(self) -> str:
        return self.scope.partition(" ")[0]

    @property
    def owner(self) -> str:
        return self.scope.partition(" ")[2]


class SavedApprovals:
    """`owner`: only those of one user, None for all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = statements(database.dialect)

    async def all(self, owner: str | None, project_id: str | None = None) -> list[SavedApproval]:
        rows = await self._database.read(directory_rows.all_approvals)
        found = (SavedApproval(row.project_id, row.permission, row.pattern) for row in rows)
        return [each for each in found if owner in (None, each.owner) and project_id in (None, each.project_id)]

    async def remove(self, owner: str | None, saved_id: str) -> None:
        """What it allowed is asked for again. One that is not there is gone already."""
        saved = SavedApproval.of_id(saved_id)
        if saved is None or owner not in (None, saved.owner):
            return
        row = {"of_project": saved.scope, "of_permission": saved.permission, "gone": saved.pattern}
        await self._database.write(lambda connection: connection.execute(self._sql.delete_approval, row))
