"""The user's input as parts of a prompt, and a prompt's parts as blocks for the editor. Pure."""

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from urllib.parse import SplitResult, unquote, urlsplit

from acp import schema
from acp.helpers import ContentBlock, image_block, resource_link_block, text_block

from app.api.client import Json

_DATA = re.compile(r"data:[^,]*;base64,(.*)", re.DOTALL)
_LINES = re.compile(r"L?(\d+)(?:[:-]L?(\d+))?")
"""How editors name lines after the `#` of a link."""


def parts_of(blocks: Iterable[ContentBlock]) -> list[Json]:
    return [part for block in blocks for part in _parts(block)]


def _parts(block: ContentBlock) -> Iterator[Json]:
    match block:
        case schema.TextContentBlock(text=text):
            yield {"type": "text", "text": text}
        case schema.ImageContentBlock() | schema.AudioContentBlock():
            yield _data_part(block.mime_type, block.data, _name(getattr(block, "uri", None)) or block.type)
        case schema.EmbeddedResourceContentBlock():
            yield _embedded(block)
        case schema.ResourceContentBlock():
            yield _linked(block)


def _embedded(block: schema.EmbeddedResourceContentBlock) -> Json:
    resource = block.resource
    name = path_of(resource.uri) or resource.uri
    if isinstance(resource, schema.BlobResourceContents):
        return _data_part(resource.mime_type or "application/octet-stream", resource.blob, name)
    return _data_part("text/plain", base64.b64encode(resource.text.encode()).decode(), name)


def _linked(block: schema.ResourceContentBlock) -> Json:
    """A link to a file becomes a file part, which the server reads if its user may. Any other link stays text."""
    path = path_of(block.uri)
    if path is None:
        return {"type": "text", "text": f"[{block.name}]({block.uri})"}
    mime = block.mime_type or "text/plain"
    keeps_its_type = mime.startswith("image/") or mime == "application/pdf"
    lines = _LINES.fullmatch(_split(block.uri).fragment)
    query = f"?start={lines[1]}&end={lines[2] or lines[1]}" if lines else ""
    url = Path(path).as_uri() + query
    return {"type": "file", "url": url, "filename": block.name, "mime": mime if keeps_its_type else "text/plain"}


def path_of(uri: str) -> str | None:
    """The path of a `file:` URL; an editor may send the path itself."""
    if uri.startswith("/"):
        return uri
    split = _split(uri)
    return unquote(split.path) if split.scheme == "file" and split.path.startswith("/") else None


def _name(uri: str | None) -> str | None:
    return PurePath(unquote(_split(uri).path)).name if uri else None


def _split(uri: str) -> SplitResult:
    """What is no address has no parts."""
    try:
        return urlsplit(uri)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _data_part(mime: str, data: str, name: str) -> Json:
    return {"type": "file", "mime": mime, "filename": name, "url": f"data:{mime};base64,{data}"}


def data_of(url: str) -> str | None:
    """The base64 of a `data:` URL."""
    found = _DATA.fullmatch(url)
    return found[1] if found else None


def block_of(part: Json) -> ContentBlock | None:
    """The block for a prompt's part; None for a part that an editor has no block for: synthetic text, an
    agent, a subtask."""
    if part["type"] == "text" and not part.get("synthetic"):
        return text_block(part["text"])
    if part["type"] != "file":
        return None
    if part["mime"].startswith("image/") and (data := data_of(part["url"])):
        return image_block(data, part["mime"])
    name = part.get("filename") or part["mime"]
    is_inline = part["url"].startswith("data:")
    return resource_link_block(name, f"attachment:{name}" if is_inline else part["url"], mime_type=part["mime"])
