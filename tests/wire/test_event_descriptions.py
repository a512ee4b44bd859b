"""The API's description says of each event when it happens."""

import ast
from pathlib import Path

import yaml

from app.api.v2.sessions import event_types
from app.schema.event import AnnouncedEvent
from app.schema.timeline import TIMELINE_EVENTS

ROOT = Path(__file__).parents[2]
PREFIX = "session.next."


def test_every_event_is_described() -> None:
    schemas = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)["components"]["schemas"]
    described = {event.__name__: schemas[event.__name__].get("description", "") for event in AnnouncedEvent.__subclasses__()}
    assert {name for name, text in described.items() if len(text) < 15} == set()
    for name, types in (("V2Event", event_types()), ("TimelineEvent", TIMELINE_EVENTS)):
        text = schemas[name]["properties"]["type"]["description"]
        assert [kind for kind in types if f"- `{kind}`: " not in text] == []


def test_the_events_of_a_session_are_those_that_are_made() -> None:
    """By their names in the modules that make them; a delta is named after the kind of its part."""
    files = (ROOT / "app" / "sessions" / "timeline").glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    made = {node.args[2].value for node in nodes if is_happening(node)}  # type: ignore[attr-defined]
    announced = {event.model_fields["type"].default for event in AnnouncedEvent.__subclasses__()}
    described = {name.removeprefix(PREFIX) for name in TIMELINE_EVENTS.keys() - announced}
    assert made - described == set()
    assert {name for name in described if name.removesuffix(".delta") not in words} == set()


def is_happening(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_happening"):
        return False
    return len(node.args) > 2 and isinstance(node.args[2], ast.Constant)
