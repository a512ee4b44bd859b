"""Whether two servers see the same data directory: a file in it holds a name that was drawn when it was first used."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

_NAME = "volume"


def volume_id(data_dir: Path) -> str:
    """The name of this directory. Of servers that draw one at the same moment all get the one that is kept. Raises OSError."""
    path = data_dir / _NAME
    if not path.exists():
        _draw(path)
    return path.read_text().strip()


def _draw(path: Path) -> None:
    """The file appears with its content: a link fails where another server was first."""
    drawn = path.with_name(f"{_NAME}.{secrets.token_hex(4)}")
    drawn.write_text(secrets.token_hex(8))
    try:
        with suppress(FileExistsError):
            os.link(drawn, path)
    finally:
        drawn.unlink()
