"""The rows of webhooks: what each is sent, how far its deliveries are, which server makes them, and their log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update

from app.record.engine import Connection
from app.record.repositories import journal_rows
from app.record.tables import WEBHOOK, WEBHOOK_DELIVERY

KEEP_DELIVERIES = 200
"""The log of one webhook has so many deliveries; older ones are deleted."""

Values = Mapping[str, Any]


def all_of(connection: Connection, owner: str | None = None) -> Sequence[Row[Any]]:
    """Webhooks of one owner or of all, oldest first."""
    query = select(WEBHOOK).order_by(WEBHOOK.c.created, WEBHOOK.c.id)
    return connection.execute(query if owner is None else query.where(WEBHOOK.c.owner == owner)).all()


def find(connection: Connection, webhook_id: str) -> Row[Any] | None:
    return connection.execute(select(WEBHOOK).where(WEBHOOK.c.id == webhook_id)).one_or_none()


def add(connection: Connection, row: Values) -> None:
    connection.execute(insert(WEBHOOK), [row])


def change(connection: Connection, webhook_id: str, values: Values) -> bool:
    """Changes the owner's choices. The server that delivers notices it by the `revision`. False for an unknown webhook."""
    statement = update(WEBHOOK).where(WEBHOOK.c.id == webhook_id).values(**values, revision=WEBHOOK.c.revision + 1)
    return bool(connection.execute(statement).rowcount)


def remove(connection: Connection, webhook_id: str) -> bool:
    return bool(connection.execute(delete(WEBHOOK).where(WEBHOOK.c.id == webhook_id)).rowcount)


def remove_of(connection: Connection, owner: str) -> None:
    connection.execute(delete(WEBHOOK).where(WEBHOOK.c.owner == owner))


def claim(connection: Connection, webhook_id: str, before: str, server: str) -> bool:
    """For `server`, from the server `before` (empty: from none). False if another server was faster."""
    statement = update(WEBHOOK).where(WEBHOOK.c.id == webhook_id, WEBHOOK.c.server == before, WEBHOOK.c.enabled)
    return bool(connection.execute(statement.values(server=server)).rowcount)


def release(connection: Connection, server: str) -> None:
    """Releases all webhooks that a server delivers."""
    connection.execute(update(WEBHOOK).where(WEBHOOK.c.server == server).values(server=""))


def put_progress(connection: Connection, webhook_id: str, server: str, values: Values, deliveries: Sequence[Values]) -> bool:
    """How far `server` is. False, with nothing written, if this server does not deliver the webhook any more."""
    statement = update(WEBHOOK).where(WEBHOOK.c.id == webhook_id, WEBHOOK.c.server == server)
    if not connection.execute(statement.values(**values)).rowcount:
        return False
    add_deliveries(connection, webhook_id, deliveries)
    return True


def switch_off(connection: Connection, webhook: Row[Any], reason: str) -> bool:
    """Unless its owner has changed the webhook since it was read, or another server delivers it."""
    statement = update(WEBHOOK).where(*_is_unchanged(webhook))
    return bool(connection.execute(statement.values(enabled=False, server="", disabled_reason=reason)).rowcount)


def remove_unchanged(connection: Connection, webhook: Row[Any]) -> bool:
    """On the same condition as `switch_off`."""
    return bool(connection.execute(delete(WEBHOOK).where(*_is_unchanged(webhook))).rowcount)


def _is_unchanged(webhook: Row[Any]) -> tuple[ColumnElement[bool], ...]:
    return (WEBHOOK.c.id == webhook.id, WEBHOOK.c.server == webhook.server, WEBHOOK.c.revision == webhook.revision)


def add_deliveries(connection: Connection, webhook_id: str, deliveries: Sequence[Values]) -> None:
    if not deliveries:
        return
    connection.execute(insert(WEBHOOK_DELIVERY), [{**each, "webhook_id": webhook_id} for each in deliveries])
    of_webhook = WEBHOOK_DELIVERY.c.webhook_id == webhook_id
    newest = select(WEBHOOK_DELIVERY.c.seq).where(of_webhook).order_by(WEBHOOK_DELIVERY.c.seq.desc())
    too_old = newest.offset(KEEP_DELIVERIES).limit(1).scalar_subquery()
    connection.execute(delete(WEBHOOK_DELIVERY).where(of_webhook, WEBHOOK_DELIVERY.c.seq <= too_old))


def deliveries(connection: Connection, webhook_id: str, limit: int) -> Sequence[Row[Any]]:
    """Newest first."""
    query = select(WEBHOOK_DELIVERY).where(WEBHOOK_DELIVERY.c.webhook_id == webhook_id)
    return connection.execute(query.order_by(WEBHOOK_DELIVERY.c.seq.desc()).limit(limit)).all()


def backlog(connection: Connection) -> int:
    """How many events of the journal the webhook furthest behind is still to be offered; 0 without webhooks."""
    furthest = connection.execute(select(func.min(WEBHOOK.c.cursor)).where(WEBHOOK.c.enabled)).scalar_one_or_none()
    return 0 if furthest is None else max(0, journal_rows.newest_seq(connection) - furthest)


def encrypt_anew(connection: Connection, encrypt: Callable[[str], str]) -> int:
    """Encrypts all secrets anew; returns their number."""
    rows = all_of(connection)
    for row in rows:
        connection.execute(update(WEBHOOK).where(WEBHOOK.c.id == row.id).values(secret=encrypt(row.secret)))
    return len(rows)
