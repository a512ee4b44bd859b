"""Where tests search."""

from pathlib import Path

from app.project.sandbox.sandbox import OFF, Sandbox
from app.tools.search import SearchPlace
from app.util.project_files import HeldDirectory


def search_place(folder: Path, sandbox: Sandbox = OFF) -> SearchPlace:
    held = HeldDirectory(folder)
    return SearchPlace(folder, held, (held,), sandbox)
