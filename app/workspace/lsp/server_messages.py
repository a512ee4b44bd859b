"""Reads a language server's messages, which are not trusted: what is no path, error or symbol is left out, and texts are cut."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, Field, ValidationError

from app.schema.project import FileErrors, Symbol

_ERROR = 1
_MAX_ERRORS = 20
_MAX_CHARS = 500
_MAX_NUMBER = 2**31

_MAX_SYMBOLS = 10
_FOUND_KINDS = {5, 6, 10, 11, 12, 13, 14, 23}
"""Classes, methods, enumerations, interfaces, functions, variables, constants and structures, as LSP numbers them."""

M = TypeVar("M", bound=BaseModel)
_LspNumber = Annotated[int, Field(ge=0, lt=_MAX_NUMBER)]


class LspFailure(Exception):
    """The server broke the protocol, or has ended. The message says how."""


class LspPosition(BaseModel):
    line: _LspNumber
    character: _LspNumber


class LspRange(BaseModel):
    start: LspPosition
    end: LspPosition


class LspError(BaseModel):
    range: LspRange
    message: str
    source: str | None = None
    code: int | str | None = None

    def shown(self) -> dict[str, Any]:
        """The error in LSP's form."""
        named = {"source": self.source, "code": self.code}
        rest = {name: _short(value) for name, value in named.items() if value is not None}
        return {"range": self.range.model_dump(), "severity": _ERROR, "message": plain(self.message), **rest}


class PublishedErrors(BaseModel):
    """The parameters of `textDocument/publishDiagnostics`."""

    uri: str
    version: int | None = None
    diagnostics: list[Any]

    @classmethod
    def of(cls, params: Any) -> Self | None:
        return _read(cls, params)

    @property
    def path(self) -> Path | None:
        return path_of(self.uri)

    def errors(self) -> FileErrors:
        errors = [one for one in self.diagnostics if isinstance(one, Mapping) and one.get("severity") == _ERROR]
        read = (_read(LspError, one) for one in errors[:_MAX_ERRORS])
        return FileErrors([error.shown() for error in read if error], len(errors))


def supports_pull(answer: Any) -> bool:
    """Whether a server, by its answer to `initialize`, answers `textDocument/diagnostic`."""
    capabilities = answer.get("capabilities") if isinstance(answer, Mapping) else None
    return isinstance(capabilities, Mapping) and bool(capabilities.get("diagnosticProvider"))


def pulled_errors(answer: Any, uri: str, version: int) -> PublishedErrors | None:
    """The errors in an answer to `textDocument/diagnostic`."""
    items = answer.get("items") if isinstance(answer, Mapping) else None
    return PublishedErrors.of({"uri": uri, "version": version, "diagnostics": items})


class LspLocation(BaseModel):
    uri: str
    range: LspRange


class FoundSymbol(BaseModel):
    """An item of the answer to `workspace/symbol`."""

    name: str
    kind: int
    location: LspLocation


class FileSymbol(BaseModel):
    """An item of the answer to `textDocument/documentSymbol`: nested ones have a range, those of older servers a place."""

    range: LspRange | None = None
    location: LspLocation | None = None
    children: list[Any] | None = None

    def ranges(self) -> Iterator[LspRange]:
        own = self.range or (self.location and self.location.range)
        yield from [own] if own else []
        yield from ranges_of(self.children)


def symbols(answer: Any, top: Path) -> list[Symbol]:
    """The symbols in an answer to `workspace/symbol`: those of the kinds that OpenCode finds, in files below `top`."""
    read = (_read(FoundSymbol, one) for one in answer) if isinstance(answer, list) else ()
    found = (_project_symbol(symbol, top) for symbol in read if symbol and symbol.kind in _FOUND_KINDS)
    return list(islice(filter(None, found), _MAX_SYMBOLS))


def _project_symbol(symbol: FoundSymbol, top: Path) -> Symbol | None:
    path = path_of(symbol.location.uri)
    if path is None or not path.is_relative_to(top):
        return None
    location = {"uri": path.as_uri(), "range": symbol.location.range.model_dump()}
    return Symbol.model_validate({"name": plain(symbol.name), "kind": symbol.kind, "location": location})


def ranges_of(answer: Any) -> Iterator[LspRange]:
    """The ranges of a file's symbols. Raises RecursionError for symbols nested deeper than any program's."""
    for one in answer if isinstance(answer, list) else ():
        if symbol := _read(FileSymbol, one):
            yield from symbol.ranges()


def path_of(uri: str) -> Path | None:
    """The path of a `file:` URI. None for any other URI, and for a path that must not be shown."""
    try:
        split = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(split.path)
    is_plain = path.startswith("/") and path.isprintable() and not set(path) & set('"<>') and "/../" not in f"{path}/"
    return Path(path) if split.scheme == "file" and is_plain else None


def _short(value: int | str) -> int | str:
    return value if isinstance(value, int) and abs(value) < _MAX_NUMBER else plain(str(value))


def plain(text: str) -> str:
    """Cut, and without characters that would move a terminal's cursor or end a tag."""
    shown = "".join(char if char.isprintable() or char == "\n" else " " for char in text[:_MAX_CHARS])
    return shown.replace("</", "< /")


def _read(model: type[M], value: Any) -> M | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None
