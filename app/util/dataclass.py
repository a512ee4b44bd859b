"""The standard library's `dataclass`, made in a third of the time: a server makes 250 of them at each start.

The library writes and compiles up to seven methods for each class. Here each has an `__init__` of its own, all share the rest.
That nobody changes a frozen one is for mypy to see: it is made in a fourth of the time too.
"""

from dataclasses import dataclass as _with_methods
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, slots=slots)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the library says how it is called, which takes as long as its methods
        made = _with_methods(cls, eq=False, repr=False, slots=slots)
        made.__repr__ = _repr
        if eq:
            compared = [field.name for field in fields(made) if field.compare]
            made._compared = attrgetter(*compared) if compared else type
            made.__eq__, made.__hash__ = _eq, _hash if frozen else None
        return made


def _repr(self: Any) -> str:
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    return self._compared(self) == other._compared(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))
