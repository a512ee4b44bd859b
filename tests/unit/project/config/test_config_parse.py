import json
import math
from pathlib import Path
from typing import Any

import pytest

from app.project.config import jsonc
from app.project.config.errors import ConfigInvalidError, ConfigJsonError
from app.project.config.parse import Substitution, parse_layer, substitute

BASE = Path("/project")


def parse(text: str, environ: dict[str, str] | None = None, files: dict[str, str] | None = None) -> dict[str, Any]:
    return parse_layer(text, "/project/opencode.json", BASE, values(environ, files))


def values(environ: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Substitution:
    return Substitution(environ or {}, lambda path: (files or {}).get(str(path)))


def test_comments_and_trailing_commas() -> None:
    text = """
    // a line
    { /* a
    block */ "theme": "http://not//a comment /* nor this */", // end
      "instructions": ["a,]", "b",], "server": {"port": 1,},
    }"""
    theme = "http://not//a comment /* nor this */"
    assert parse(text) == {"theme": theme, "instructions": ["a,]", "b"], "server": {"port": 1}}
    for empty in ("", "  \n", "// only a comment\n", "{}"):
        assert parse(empty) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "a": 1,\n  "b" 2\n}', 3),
        ("{\n  // note\n  /* two\n  lines */\n  \"theme\": 'x'\n}", 5),
        ('{\n  "theme": "open\n}', 2),
        ('{"theme": "x"}\n}', 2),
        ('{\n "theme": "x",\n', 3),
    ],
)
def test_a_json_error_names_file_and_line(text: str, line: int) -> None:
    with pytest.raises(ConfigJsonError) as caught:
        parse(text)
    body = caught.value.body()
    assert (caught.value.status, body["name"]) == (500, "ConfigJsonError")
    assert (body["data"]["path"], body["data"]["line"]) == ("/project/opencode.json", line)
    assert body["data"]["message"].startswith(f"/project/opencode.json:{line}: ")


def test_an_unknown_top_level_key_is_named_with_its_line() -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        parse('{\n  // hm\n  "theme": "t",\n  "provder": {}\n}')
    message = 'Unrecognized key: "provder" (did you mean "provider"?)'
    issue = {"code": "unrecognized_keys", "keys": ["provder"], "path": [], "message": message, "line": 4}
    assert caught.value.issues == caught.value.body()["data"]["issues"] == [issue]
    assert "/project/opencode.json:4" in caught.value.message


INFINITE = ["provider", "p", "models", "m", "limit", "context"]


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"server": {"port": "1"}}, ["server", "port"]),
        ({"server": {"nope": 1}}, ["server"]),
        ({"provider": {"p": {"nope": 1}}}, ["provider", "p"]),
        ({"provider": {"p": {"options": {"timeout": True}}}}, ["provider", "p", "options", "timeout"]),
        ({"provider": {"p": {"options": {"headers": "x"}}}}, ["provider", "p", "options", "headers"]),
        ({"provider": {"p": {"options": {"headers": {"x": 5}}}}}, ["provider", "p", "options", "headers", "x"]),
        ({"mcp": {"a": {"type": "local"}}}, ["mcp", "a", "command"]),
        ({"mcp": {"a": {"type": "local", "command": ["x"], "url": "y"}}}, ["mcp", "a"]),
        ({"mcp": {"a": {"type": "odd"}}}, ["mcp", "a"]),
        ({"agent": {"a": {"color": "red"}}}, ["agent", "a", "color"]),
        ({"agent": {"a": {"temperature": "hot"}}}, ["agent", "a", "temperature"]),
        ({"provider": {"p": {"models": {"m": {"limit": {"context": math.inf, "output": 1}}}}}}, INFINITE),
        ({"permission": {"bash": {"git *": "yes"}}}, ["permission", "bash", "git *"]),
        ({"permission": {"webfetch": {"x": "allow"}}}, ["permission"]),
        ({"share": "always"}, ["share"]),
        ({"instructions": ["a", 1]}, ["instructions", 1]),
        ({"command": {"c": {}}}, ["command", "c", "template"]),
        ({"lsp": {"x": {}}}, ["lsp", "x"]),
        ({"autoupdate": "never"}, ["autoupdate"]),
    ],
)
def test_an_invalid_value_is_named_by_its_path(config: dict[str, Any], path: list[Any]) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        parse(json.dumps(config, indent=1))
    assert [issue["path"] for issue in caught.value.issues] == [path]
    assert caught.value.issues[0]["line"] > 1


@pytest.mark.parametrize("text", ["[]", '"x"', "1", "null", "true"])
def test_only_an_object_is_a_configuration(text: str) -> None:
    with pytest.raises(ConfigInvalidError, match="object"):
        parse(text)


@pytest.mark.parametrize(
    ("value", "result"), [('say "hi"', 'say "hi"'), ("two\nlines", "two\nlines"), ("end\\", "end\\"), ("a\\nb", "a\nb")]
)
def test_env_never_ends_the_string_that_it_stands_in(value: str, result: str) -> None:
    assert parse('{"theme": "{env:X}"}', {"X": value}) == {"theme": result}


def test_env_is_nothing_where_it_is_not_set_and_raw_outside_a_string() -> None:
    assert parse('{"theme": "a-{env:X}-{env:MISSING}"}', {"X": "b"}) == {"theme": "a-b-"}
    assert parse('{"server": {"port": {env:PORT}}}', {"PORT": "4096"}) == {"server": {"port": 4096}}


def test_a_file_is_trimmed_and_escaped_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_TEST_HOME", "/home/me")
    files = {"/etc/k": "1", "/home/me/k": "2", "/data/k": "3", "/project/k": '\n a "quoted"\nkey \n'}
    text = '{"instructions": ["{file:/etc/k}", "{file:~/k}", "{file:{env:D}/k}", "{file:./k}"]}'
    assert parse(text, {"D": "/data"}, files) == {"instructions": ["1", "2", "3", 'a "quoted"\nkey']}


def test_a_missing_file_names_the_reference_and_the_line_but_not_in_a_comment() -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        parse('{\n\n  "theme": "{file:gone.txt}"\n}')
    assert "{file:gone.txt}" in caught.value.message and caught.value.data["line"] == 3
    text = '{ // {file:gone.txt}\n /* {file:gone} */ "theme": "{env:X}" }'
    assert substitute(text, "p", BASE, values({"X": "x"})) == text.replace("{env:X}", "x")


def test_permission_keeps_its_order_and_a_word_means_everything() -> None:
    assert parse('{"permission": "ask"}') == {"permission": {"*": "ask"}}
    found = parse('{"permission": {"edit": "deny", "*": "allow", "bash": {"z": "ask", "a": "deny"}, "read": "allow"}}')
    assert list(found["permission"]) == ["edit", "*", "bash", "read"]
    assert list(found["permission"]["bash"]) == ["z", "a"]


def test_agent_rewrites_old_forms_and_keeps_unknown_keys_as_options() -> None:
    text = '{"agent": {"a": {"tools": {"patch": true, "bash": false}, "maxSteps": 3, "effort": "high", "options": {"x": 1}}}}'
    agent = parse(text)["agent"]["a"]
    assert agent["permission"] == {"edit": "allow", "bash": "deny"}
    assert (agent["steps"], agent["options"]) == (3, {"x": 1, "effort": "high"})


def test_merge_keeps_comments_layout_and_what_is_equal() -> None:
    text = '{\n    // mine\n    "theme": "{env:T}", // why\n    "server": {\n        "port": 1,\n    },\n}\n'
    merged = jsonc.merge(text, {"server": {"port": 2, "cors": ["x"]}, "model": "p/m"})
    assert merged == (
        '{\n    // mine\n    "theme": "{env:T}", // why\n    "server": {\n        "port": 2,\n        "cors": [\n'
        '          "x"\n        ]\n    },\n    "model": "p/m"\n}\n'
    )


TEXTS = ["{}", '{"a": 1}', '{"a": 1 // c\n}', '{"a": 1, // c, d\n}', "{\n  // c\n}", "", "// c\n{}", '{"a": {}}']


@pytest.mark.parametrize("text", [*TEXTS, '{"a": {"b": 1}}'])
def test_merged_text_reads_as_the_merged_object(text: str) -> None:
    kept = {"b": 1} if '"b"' in text else {}
    changed = {"c": [1, {"d": 2}]}
    merged = jsonc.loads(jsonc.merge(text, {"a": changed, "e é": 'x"y'}))
    assert merged == {"a": {**kept, **changed}, "e é": 'x"y'}
