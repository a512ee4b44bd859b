"""Approvals of directories that allow more than was asked for are dropped, so that they are asked for again.

A reply of `always` to `cat /srv/data/a.txt` stored `/srv/data*`, which is `/srv/database` too; now it is `/srv/data/*`.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

APPROVAL = sa.table("permission_approval", sa.column("permission"), sa.column("pattern"))
REQUEST = sa.table("pending_ask", sa.column("seq"), sa.column("kind"), sa.column("body"))


def upgrade() -> None:
    of_directories = APPROVAL.c.permission == "external_directory"
    for (pattern,) in list(op.get_bind().execute(sa.select(APPROVAL.c.pattern).where(of_directories).distinct())):
        if _is_too_wide(pattern):
            op.execute(sa.delete(APPROVAL).where(of_directories, APPROVAL.c.pattern == pattern))
    body = sa.cast(REQUEST.c.body, sa.LargeBinary) if op.get_bind().dialect.name == "sqlite" else REQUEST.c.body
    for seq, stored in list(op.get_bind().execute(sa.select(REQUEST.c.seq, body).where(REQUEST.c.kind == "permission"))):
        if (narrowed := _narrowed(_parsed(stored))) is not None:
            op.execute(sa.update(REQUEST).where(REQUEST.c.seq == seq).values(body=json.dumps(narrowed, separators=(",", ":"))))


def downgrade() -> None:
    pass


def _is_too_wide(pattern: str) -> bool:
    """`/*` too: it was stored for a file that lies in `/`."""
    return pattern.startswith("/") and pattern.endswith("*") and (not pattern.endswith("/*") or pattern == "/*")


def _parsed(body: str | bytes) -> dict[str, Any]:
    """A damaged body says nothing, and stays as it is."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _narrowed(request: dict[str, Any]) -> dict[str, Any] | None:
    """A request that waits for its reply; None if it stays."""
    offered = request.get("always", [])
    kept = [pattern for pattern in offered if not _is_too_wide(pattern)]
    if request.get("permission") != "external_directory" or kept == offered:
        return None
    return {**request, "always": kept}
