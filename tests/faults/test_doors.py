"""Every route against every kind of Host, Origin and content type: no foreign host is served, no page of an unlisted origin may
write or read, no request that a page may send without asking changes anything. Every write leaves one line in the audit log."""

import json
from pathlib import Path
from typing import Any

from every_route import WRITING, every_route, unknown
from running_app import running_app

Case = tuple[str, str, str, str | None, str | None]
"""Method, path, Host, Origin, content type."""


async def test_every_write_leaves_one_line(tmp_path: Path, figure: Any) -> None:
    """Whatever becomes of it: here every route is asked for what is not there."""
    missing, doubled, routes = [], [], []
    async with running_app(tmp_path) as app:
        log = app.data_dir / "audit.log"
        lines: list[str] = []
        for method, path in every_route(app.fastapi):
            async with app.client.stream(method, unknown(path), json={} if method in WRITING else None) as response:
                pass
            new = log.read_text().splitlines()[len(lines) :] if log.exists() else []
            lines += new
            if method in WRITING:
                routes.append((method, path))
                entry = json.loads(new[0]) if new else {}
                missing += [(method, path)] if (entry.get("route"), entry.get("status")) != (path, response.status_code) else []
            doubled += [(method, path)] if len(new) > (method in WRITING) else []
    figure(f"{len(routes)} routes that write: {len(missing)} without their line, {len(doubled)} with one too many")
    assert (missing, doubled) == ([], [])
