"""Tells which call a piece of a streamed tool call belongs to."""

from app.provider.wire.tool_inputs import ToolInputs


class CallKeys:
    """The index identifies a call. Some servers send none, or the same for every call: then a new id or name begins a call, and
    what has neither goes on with the newest."""

    def __init__(self, calls: ToolInputs) -> None:
        self._calls = calls
        self._keys: list[int] = []
        self._of_index: dict[int, list[int]] = {}

    def key_of(self, index: object, call_id: str | None, name: str, fragment: str) -> int:
        """`index` as the server sends it. A key that is new begins a call."""
        known = self._of_index.setdefault(index, []) if isinstance(index, int) else self._keys
        for key in reversed(known):
            if call_id and self._calls.given_id(key) == call_id:
                return key
        if known and not self._begins(known[-1], call_id, name, fragment):
            return known[-1]
        return self._new(known)

    def _begins(self, newest: int, call_id: str | None, name: str, fragment: str) -> bool:
        """Whether a piece with an id that is new, or without one, begins another call than the newest of its index."""
        if not name or not self._calls.tool(newest):
            return False
        if call_id and self._calls.given_id(newest):
            return True
        return name != self._calls.tool(newest) or (bool(fragment) and self._calls.is_complete(newest))

    def _new(self, known: list[int]) -> int:
        key = len(self._keys)
        self._keys.append(key)
        if known is not self._keys:
            known.append(key)
        return key
