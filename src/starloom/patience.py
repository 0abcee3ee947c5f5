"""Time that does not count: while a person is asked, the deadlines of the work that waits for the answer stand still.

Whoever sets a deadline puts work under it with `under`; whoever asks a person does so in `a_person_thinking`. The two
need not know each other: what is between them is the context of the task, which its own tasks inherit.
"""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Deadline(Protocol):
    """A limit in time that can stand still. It is held as often as it is let go on; only the outermost pair counts."""

    def hold(self) -> None:
        """Stop the time."""

    def go_on(self) -> None:
        """Let the time go on, with what was left of it."""


_deadlines: contextvars.ContextVar[tuple[Deadline, ...]] = contextvars.ContextVar("starloom_deadlines", default=())


@contextmanager
def under(deadline: Deadline) -> Iterator[None]:
    """Put what the block does under a deadline, beside those it is under already."""
    token = _deadlines.set((*_deadlines.get(), deadline))
    try:
        yield
    finally:
        _deadlines.reset(token)


@contextmanager
def a_person_thinking() -> Iterator[None]:
    """Hold all deadlines that the caller is under while the block waits for a person."""
    held = _deadlines.get()
    for deadline in held:
        deadline.hold()
    try:
        yield
    finally:
        for deadline in held:
            deadline.go_on()
