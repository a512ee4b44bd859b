"""Why a tool may not go on.

PermissionRefused
├── Denied      a rule forbids it
├── Vetoed      a plugin forbids it
├── Rejected    the person said no: the turn stops after this step
└── Corrected   the person said no and what to do instead: the turn goes on
"""

import json

from app.schema.permission import Rule


class PermissionRefused(Exception):
    pass


class Denied(PermissionRefused):
    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules
        super().__init__(
            "A permission rule forbids this tool call. The rules that apply: " + json.dumps([rule.wire() for rule in rules])
        )


class Vetoed(PermissionRefused):
    def __init__(self) -> None:
        super().__init__("A plugin refused permission for this tool call.")


class Rejected(PermissionRefused):
    def __init__(self) -> None:
        super().__init__("The user rejected permission for this tool call.")


class Corrected(PermissionRefused):
    def __init__(self, feedback: str) -> None:
        super().__init__(f"The user rejected permission for this tool call and said: {feedback}")
