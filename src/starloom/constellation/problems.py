"""What can be wrong with a graph, an edit or a document; raised in this room, caught by whoever shows or repairs it.

UsageError
└── ConstellationError
    ├── EditError         the edit was refused and changed nothing
    │   ├── CycleError    it would close a cycle; `cycle` names it
    │   └── ConflictError it was made against an older version and something it touches has changed since
    └── DocumentError     a file or document cannot be read as a constellation; names the place
"""

from collections.abc import Sequence

from starloom.errors import UsageError

_SHOWN = 8


class ConstellationError(UsageError):
    """Something about a graph cannot be done as asked."""


class EditError(ConstellationError):
    """The edit was refused; the graph is exactly as before."""


class CycleError(EditError):
    """The edge would close a cycle. `cycle` lists its task ids in order, the first once."""

    def __init__(self, message: str, cycle: Sequence[str]) -> None:
        super().__init__(message)
        self.cycle = tuple(cycle)


class ConflictError(EditError):
    """The edit was made against an older version, and what it touches has changed. `entities` names that."""

    def __init__(self, message: str, entities: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.entities = tuple(entities)


class DocumentError(ConstellationError):
    """The document is not a constellation; the message names the place."""


def cycle_text(cycle: Sequence[str]) -> str:
    """Return `a → b → … → a`, shortened in the middle when it is long."""
    names, half = list(cycle[:_SHOWN]), _SHOWN // 2
    if len(cycle) > _SHOWN:
        names = [*cycle[:half], f"… {len(cycle) - _SHOWN} more …", *cycle[-half:]]
    return " → ".join([*names, cycle[0]])
