import pytest

from app.project.config.flags import Flags


def flags(**values: str) -> Flags:
    return Flags.from_env({f"OPENCODE_{name}": value for name, value in values.items()})


@pytest.mark.parametrize(("text", "on"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("yes", False), ("", False)])
def test_truthy(text: str, on: bool) -> None:
    assert flags(DISABLE_PRUNE=text).disable_prune is on


def test_every_flag_is_read_from_its_variable() -> None:
    assert flags() == Flags() and (Flags().client, Flags().server_username) == ("cli", "opencode")
    for name in (name for name, field in Flags.__dataclass_fields__.items() if field.type in ("bool", bool)):
        assert (getattr(Flags(), name), getattr(flags(**{name.upper(): "1"}), name)) == (False, True), name
    for name in ("server_password", "server_username", "config", "config_dir", "config_content", "permission", "client"):
        assert getattr(flags(**{name.upper(): "value"}), name) == "value", name
    found = flags(DISABLE_CLAUDE_CODE="1")
    assert found.disable_claude_code_prompt and found.disable_claude_code_skills


@pytest.mark.parametrize(("text", "value"), [("64000", 64000), ("0", None), ("-1", None), ("1.5", None), ("", None)])
@pytest.mark.parametrize("name", ["experimental_output_token_max", "experimental_bash_default_timeout_ms"])
def test_numbers_are_positive_or_not_given(name: str, text: str, value: int | None) -> None:
    assert getattr(flags(**{name.upper(): text}), name) == value


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(flags(SERVER_PASSWORD="hunter2", CONFIG_CONTENT='{"k": "hunter2"}'))
