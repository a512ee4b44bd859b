"""Every route is asked for what is not there: every write leaves one line in the audit log, whatever becomes of it."""

import json
from pathlib import Path
from typing import Any

from every_route import WRITING, every_route, unknown
from running_app import running_app


async def test_every_write_leaves_one_line(tmp_path: Path, figure: Any) -> None:
    missing, doubled, routes, lines = [], [], [], list[str]()
    async with running_app(tmp_path) as app:
        log = app.data_dir / "audit.log"
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
