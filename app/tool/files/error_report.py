"""What the model is told of the errors that language servers find after a change, in OpenCode's words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.schema.project import FileErrors

MAX_ERRORS = 20
MAX_OTHER_FILES = 5

Errors = Mapping[Path, FileErrors]


def of_file(path: Path, errors: Errors) -> str:
    """With an empty line before it; empty where there is none."""
    return _section("LSP errors detected in this file, please fix:", path, errors.get(path))


def of_others(written: Path, errors: Errors) -> str:
    others = [path for path in errors if path != written and errors[path].total][:MAX_OTHER_FILES]
    return "".join(_section("LSP errors detected in other files:", path, errors[path]) for path in others)


def of_patch(names: Mapping[Path, str], errors: Errors) -> str:
    """`names`: the files of the patch as they are shown."""
    sections = (_section(f"LSP errors detected in {name}, please fix:", path, errors.get(path)) for path, name in names.items())
    return "".join(sections)


def metadata(paths: Sequence[Path], errors: Errors) -> dict[str, list[Mapping[str, Any]]]:
    """By path, as LSP has them: of the files that were written, and of the others that are told."""
    others = [path for path in errors if path not in paths][:MAX_OTHER_FILES]
    return {str(path): errors[path].items[:MAX_ERRORS] for path in (*paths, *others) if path in errors and errors[path].total}


def _section(words: str, path: Path, errors: FileErrors | None) -> str:
    if errors is None or not errors.total:
        return ""
    told = errors.items[:MAX_ERRORS]
    more = f"\n... and {errors.total - len(told)} more" if errors.total > len(told) else ""
    return f'\n\n{words}\n<diagnostics file="{path}">\n' + "\n".join(map(_line, told)) + f"{more}\n</diagnostics>"


def _line(error: Mapping[str, Any]) -> str:
    start = error["range"]["start"]
    return f"ERROR [{start['line'] + 1}:{start['character'] + 1}] {error['message']}"
