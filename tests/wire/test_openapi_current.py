"""openapi.yaml at the root is what the code says now, and the client's generated modules what it says: `make openapi`."""

import ast
import subprocess
import sys
from pathlib import Path

import yaml
from shell_commands import Shell

from app.api.v2.sessions import event_types
from app.schema.event import AnnouncedEvent
from app.schema.timeline import TIMELINE_EVENTS

ROOT = Path(__file__).parents[2]


def test_openapi_yaml_is_current(tmp_path: Path) -> None:
    is_current = Shell(tmp_path, tmp_path, tmp_path / "data").done("openapi").stdout == (ROOT / "openapi.yaml").read_text()
    assert is_current, "run `make openapi`"
    assert not (tmp_path / "data").exists(), "describing the API must not touch a data directory"


def test_what_is_generated_of_the_python_client_is_current() -> None:
    command = [sys.executable, "-m", "generator", "--check"]
    checked = subprocess.run(command, cwd=ROOT / "client", capture_output=True, text=True, timeout=180)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_of_every_event_it_says_when_it_happens() -> None:
    schemas = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)["components"]["schemas"]
    described = {event.__name__: schemas[event.__name__].get("description", "") for event in AnnouncedEvent.__subclasses__()}
    assert {name for name, text in described.items() if len(text) < 15} == set()
    for name, types in (("V2Event", event_types()), ("TimelineEvent", TIMELINE_EVENTS)):
        text = schemas[name]["properties"]["type"]["description"]
        assert [kind for kind in types if f"- `{kind}`: " not in text] == []


def test_the_events_of_a_session_are_those_that_are_made() -> None:
    """By their names in the modules that make them; those of texts and reasoning are put together from a kind and an ending."""
    files = (ROOT / "app" / "sessions" / "timeline").glob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    kinds = [call.args[2] for call in calls if ast.unparse(call.func) == "_happening" and len(call.args) > 2]
    made = {kind.value for kind in kinds if isinstance(kind, ast.Constant)}
    announced = {event.model_fields["type"].default for event in AnnouncedEvent.__subclasses__()}
    described = {name.removeprefix("session.next.") for name in TIMELINE_EVENTS.keys() - announced}
    assert made and made - described == set()
    assert {name for name in described if name not in words and not words.issuperset(_kind_and_ending(name))} == set()


def _kind_and_ending(name: str) -> set[str]:
    kind, _, ending = name.rpartition(".")
    return {kind, f".{ending}"}
