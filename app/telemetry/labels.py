"""Labels whose values people's configuration decides on: without a bound each new one would cost memory for ever."""

OTHER = "other"
LONGEST = 200


class BoundedLabels:
    """The first `most` combinations are kept as they are; any other counts as `other`, as does one of more than LONGEST
    characters."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def bounded(self, *values: str) -> tuple[str, ...]:
        if values in self._known:
            return values
        if len(self._known) >= self._most or sum(map(len, values)) > LONGEST:
            return (OTHER,) * len(values)
        self._known.add(values)
        return values
