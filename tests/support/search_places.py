"""Where tests search."""

from pathlib import Path

from app.sandbox.sandbox import OFF, Sandbox
from app.tool.search import SearchPlace
from app.util.project_files import HeldDirectory


def search_place(folder: Path, sandbox: Sandbox = OFF) -> SearchPlace:
    held = HeldDirectory(folder)
    return SearchPlace(folder, held, (held,), sandbox)
