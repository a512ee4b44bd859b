"""Why a permission is not granted.

PermissionNotGranted
├── PermissionDenied                a rule denies it
├── PermissionVetoed                a plugin denies it
├── PermissionRejected              the user rejects it: the turn stops after this step
└── PermissionRejectedWithMessage   the user rejects it and says what to do instead: the turn goes on
"""

import json

from app.schema.permission import Rule


class PermissionNotGranted(Exception):
    pass


class PermissionDenied(PermissionNotGranted):
    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules
        super().__init__(
            "A permission rule forbids this tool call. The rules that apply: " + json.dumps([rule.wire() for rule in rules])
        )


class PermissionVetoed(PermissionNotGranted):
    def __init__(self) -> None:
        super().__init__("A plugin refused permission for this tool call.")


class PermissionRejected(PermissionNotGranted):
    def __init__(self) -> None:
        super().__init__("The user rejected permission for this tool call.")


class PermissionRejectedWithMessage(PermissionNotGranted):
    def __init__(self, feedback: str) -> None:
        super().__init__(f"The user rejected permission for this tool call and said: {feedback}")
