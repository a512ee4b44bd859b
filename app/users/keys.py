"""Users' own keys of providers, encrypted in the database with the server's secret."""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from app.schema.model import Auth
from app.storage.engine import Database
from app.storage.repositories import account_rows
from app.storage.statements import statements
from app.users.server_secret import ServerSecret
from app.users.users import FRESH_SECONDS

log = logging.getLogger(__name__)

_AUTH: TypeAdapter[Auth] = TypeAdapter(Auth)
MOST_USERS = 1_000


@dataclass(frozen=True, slots=True)
class _ReadKeys:
    """`rows` as they are stored: the keys are decrypted again only when these change."""

    at: float
    rows: tuple[tuple[str, str], ...]
    keys: Mapping[str, Auth]


class UserKeys:
    def __init__(self, database: Database, secret: ServerSecret) -> None:
        self._database = database
        self._sql = statements(database.dialect)
        self._secret = secret
        self._read: OrderedDict[str, _ReadKeys] = OrderedDict()

    async def for_user(self, name: str) -> Mapping[str, Auth]:
        """By provider, as they were a second ago at most; the same object while they do not change."""
        known = self._read.get(name)
        if known is None or time.monotonic() - known.at > FRESH_SECONDS:
            known = await self._read_again(name, known)
        return known.keys

    async def _read_again(self, name: str, before: _ReadKeys | None) -> _ReadKeys:
        at = time.monotonic()
        found = await self._database.read(lambda connection: account_rows.user_keys(connection, name))
        rows = tuple((row.provider_id, row.body) for row in found)
        keys = before.keys if before and before.rows == rows else self._decrypted(name, rows)
        self._read[name] = read = _ReadKeys(at, rows, keys)
        self._read.move_to_end(name)
        if len(self._read) > MOST_USERS:
            self._read.popitem(last=False)
        return read

    def _decrypted(self, name: str, rows: tuple[tuple[str, str], ...]) -> dict[str, Auth]:
        """Without those of another secret: their users have to store them again."""
        if not rows:
            return {}
        from cryptography.fernet import InvalidToken

        box, keys = self._secret.box(), dict[str, Auth]()
        for provider_id, body in rows:
            try:
                keys[provider_id] = _AUTH.validate_json(box.decrypt(body))
            except InvalidToken:
                log.error("the key of %s for %s is encrypted with a secret that this server does not have", name, provider_id)
        return keys

    async def put(self, name: str, provider_id: str, auth: Auth) -> None:
        body = self._secret.box().encrypt(_AUTH.dump_json(auth, by_alias=True, exclude_none=True)).decode()
        await self._write(name, self._sql.put_user_key, {"name": name, "provider_id": provider_id, "body": body})

    async def remove(self, name: str, provider_id: str) -> None:
        await self._write(name, self._sql.delete_user_key, {"gone": name, "gone_provider": provider_id})

    async def _write(self, name: str, statement: Any, row: dict[str, str]) -> None:
        await self._database.write(lambda connection: connection.execute(statement, [row]))
        self._read.pop(name, None)

    async def encrypt_anew(self) -> int:
        """All keys, with the first of the server's secrets; how many there are. Raises InvalidToken, and changes nothing then."""

        def encrypt(connection: Any) -> int:
            box, rows = self._secret.box(), account_rows.user_keys(connection)
            anew = [{**row._asdict(), "body": box.rotate(row.body.encode()).decode()} for row in rows]
            if anew:
                connection.execute(self._sql.put_user_key, anew)
            return len(anew)

        return await self._database.write(encrypt)
