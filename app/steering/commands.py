"""Names of the commands of a terminal client."""

from typing import Final

SHOW_HELP: Final = "help.show"
LIST_SESSIONS: Final = "session.list"
SWITCH_THEME: Final = "theme.switch"
LIST_MODELS: Final = "model.list"
SUBMIT_PROMPT: Final = "prompt.submit"
CLEAR_PROMPT: Final = "prompt.clear"

_OLD_NAMES = {
    "session_new": "session.new",
    "session_share": "session.share",
    "session_interrupt": "session.interrupt",
    "session_compact": "session.compact",
    "messages_page_up": "session.page.up",
    "messages_page_down": "session.page.down",
    "messages_line_up": "session.line.up",
    "messages_line_down": "session.line.down",
    "messages_half_page_up": "session.half.page.up",
    "messages_half_page_down": "session.half.page.down",
    "messages_first": "session.first",
    "messages_last": "session.last",
    "agent_cycle": "agent.cycle",
}


def current_name(command: str) -> str:
    """Of a command by its old name, as `POST /tui/execute-command` takes it. Other names stay."""
    return _OLD_NAMES.get(command, command)
