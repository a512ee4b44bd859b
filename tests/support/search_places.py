"""Where tests search."""

from app.sandbox.sandbox import OFF
from app.sandbox.sandbox import Sandbox
from app.tool.search import SearchPlace
from app.util.project_files import HeldDirectory
from pathlib import Path


def search_place(folder: Path, sandbox: Sandbox = OFF) -> SearchPlace:
    held = HeldDirectory(folder)
    return SearchPlace(folder, held, (held,), sandbox)
