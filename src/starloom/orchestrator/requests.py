"""Requests with a key of their own: one that is sent again is answered again, and not carried out a second time.

A client that lost the reply cannot know whether its edit was made. The key of its request is the idempotency key of the
event that came of it, so it is in the journal in the same commit: after a restart too, the second sending is known.
Used by the scheduler, which is the one owner of a run's edits, and by the session for runs that have ended.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from starloom.errors import UsageError
from starloom.journal.events import EditApplied, EditRefused, Recorded

REQUESTS = "request:"
"""What the journal's keys of such events begin with."""


class KeyReused(UsageError):
    """A key came again with another request; nothing was done."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client's key, which is good for one run, and the digest of all that it asked with it."""

    key: str
    digest: str

    @property
    def prefix(self) -> str:
        """What the journal's key begins with, whatever was asked."""
        return f"{REQUESTS}{hashlib.sha256(self.key.encode()).hexdigest()}:"

    @property
    def journal_key(self) -> str:
        """The idempotency key of the event that comes of it."""
        return f"{self.prefix}{self.digest}"


Answer = EditApplied | EditRefused


def earlier_answer(request: Request, keyed: Iterable[tuple[str, Recorded]]) -> Answer | None:
    """Return what came of a request when it was sent before.

    Args:
        request: as it comes now.
        keyed: events whose keys begin with its prefix.

    Raises:
        KeyReused: its key was used for another request.
    """
    for key, recorded in keyed:
        if key.startswith(request.prefix) and isinstance(recorded.event, EditApplied | EditRefused):
            check_same(request, key)
            return recorded.event
    return None


def check_same(request: Request, journal_key: str) -> None:
    """Check that a request which came before under this key asked the same.

    Raises:
        KeyReused: it asked something else.
    """
    if request.journal_key != journal_key:
        raise KeyReused(
            f"The key {request.key!r} was used for another request; take a new key for a new request.", key=request.key
        )
