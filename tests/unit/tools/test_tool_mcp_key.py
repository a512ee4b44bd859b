"""The names of MCP tools."""

import pytest

from app.tools.external import MAX_KEY_LENGTH, tool_key


@pytest.mark.parametrize(
    ("server", "tool", "key"),
    [
        ("time", "get_current_time", "time_get_current_time"),
        ("my server", "a.b/c", "my_server_a_b_c"),
        ("größe", "x-y", "gr__e_x-y"),
    ],
)
def test_a_key_has_only_characters_that_providers_take(server: str, tool: str, key: str) -> None:
    assert tool_key(server, tool) == key


def test_long_keys_are_cut_and_stay_apart() -> None:
    keys = {tool_key("server", "long" * 30 + end) for end in "ab"}
    assert len(keys) == 2 and {len(key) for key in keys} == {MAX_KEY_LENGTH}
