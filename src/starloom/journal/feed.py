"""Hands committed events to those who follow a run in this process; both stores use it, nobody else.

A follower reads the store until it has caught up and then takes what commits bring. What a commit brings is kept for
each follower up to a bound; a slow follower loses its copy, not the event: it reads the store again from where it is.

    store ──chunks──▶ catching up ──nothing left──▶ waiting ──a commit──▶ waiting
                          ▲                            │
                          └───── a gap: fell behind ───┘
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import Recorded, RunEnded, RunResumed

_KEPT = 1_000  # events held for one follower that is busy; beyond it the follower reads the store

Chunks = Callable[[RunId, int], AsyncIterator[tuple[Recorded, ...]]]


class _Listener:
    """One follower's share of the commits."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.kept: deque[Recorded] = deque(maxlen=_KEPT)

    def take(self, after: int) -> tuple[Recorded, ...] | None:
        """Return what follows `after` without a gap and forget it; None when some of it was dropped."""
        self.woken.clear()
        taken = tuple(recorded for recorded in self.kept if recorded.seq > after)
        self.kept.clear()
        if taken and taken[0].seq != after + 1:
            return None
        return taken


class Feed:
    """The followers of one store. All calls come from the store's event loop."""

    def __init__(self) -> None:
        self._listeners: dict[RunId, set[_Listener]] = {}
        self._closed = False

    def publish(self, run_id: RunId, committed: Iterable[Recorded]) -> None:
        """Give newly committed events, in order, to whoever follows the run."""
        for listener in self._listeners.get(run_id, ()):
            listener.kept.extend(committed)
            listener.woken.set()

    def close(self) -> None:
        """Wake every follower so that it ends with a `StoreError`; idempotent."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.woken.set()

    async def follow(
        self, run_id: RunId, after: int, chunks: Chunks, has_ended: Callable[[RunId], Awaitable[bool]]
    ) -> AsyncIterator[Recorded]:
        """Yield events above `after`, then new ones; end when all are read and the run has ended.

        Raises:
            StoreError: the store was closed before the run ended.
        """
        listener = _Listener()
        self._listeners.setdefault(run_id, set()).add(listener)
        try:
            ended = await has_ended(run_id)  # asked before reading: an end that comes later is among the events
            unread = chunks(run_id, after)
            while True:
                async for chunk in unread:
                    for recorded in chunk:
                        yield recorded
                    after, ended = chunk[-1].seq, _ended(chunk, ended)
                if not listener.kept:
                    if ended:
                        return
                    await listener.woken.wait()
                if self._closed:
                    raise StoreError(f"The journal was closed while run {run_id!r} was followed.", run_id=run_id)
                taken = listener.take(after)
                unread = chunks(run_id, after) if taken is None else _one_chunk(taken)
        finally:
            self._listeners[run_id].discard(listener)
            if not self._listeners[run_id]:
                del self._listeners[run_id]


async def _one_chunk(chunk: tuple[Recorded, ...]) -> AsyncIterator[tuple[Recorded, ...]]:
    """Yield the chunk unless it is empty."""
    if chunk:
        yield chunk


def _ended(chunk: tuple[Recorded, ...], before: bool) -> bool:
    """Return whether the run has ended as far as these events say; `before` when they say nothing."""
    for recorded in reversed(chunk):
        if isinstance(recorded.event, RunEnded):
            return True
        if isinstance(recorded.event, RunResumed):
            return False
    return before
