"""A run's events for readers in the same process: one bounded queue a subscriber, so that no reader slows the run.

The runner publishes what the journal has committed. A reader that falls behind is told so with a `Gap` and reads the
rest from the journal by number; one that raises is reported and goes on with the next event.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starloom.journal.events import Recorded

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gap:
    """Events `first` to `last` were not queued because the reader was too slow; the journal has them."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A subscriber was too slow or raised."""

    subscriber: str
    what: str
    seq: int


Item: TypeAlias = Recorded | Gap


class Subscription:
    """One reader's queue; iterate over it. Made by `EventStream.subscribe`, closed by `close` or the stream's end."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.missed = 0
        self._capacity = capacity
        self._items: deque[Item] = deque()
        self._gap: Gap | None = None
        self._wakeup = asyncio.Event()
        self._is_closed = False

    def offer(self, recorded: Recorded) -> bool:
        """Queue an event, or note it as missed; return whether this is the first of a new gap."""
        if self._is_closed:
            return False
        is_new_gap = False
        if self._gap is not None or len(self._items) >= self._capacity:
            is_new_gap = self._gap is None
            self._gap = Gap(self._gap.first if self._gap else recorded.seq, recorded.seq)
            self.missed += 1
        else:
            self._items.append(recorded)
        self._wakeup.set()
        return is_new_gap

    def close(self) -> None:
        """End the iteration once what is queued has been read."""
        self._is_closed = True
        self._wakeup.set()

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yield events in order, with a `Gap` in the place of those that were missed."""
        while True:
            while self._items:
                yield self._items.popleft()
            if self._gap is not None:
                gap, self._gap = self._gap, None
                yield gap
            elif self._is_closed:
                return
            else:
                self._wakeup.clear()
                await self._wakeup.wait()


class EventStream:
    """The subscribers of one run."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self.troubles: deque[Trouble] = deque(maxlen=1000)

    def subscribe(self, name: str, capacity: int = 1000) -> Subscription:
        """Return a new reader's queue; it gets what is published from now on."""
        subscription = Subscription(name, capacity)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Close a reader's queue and forget it."""
        subscription.close()
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def publish(self, recorded: Sequence[Recorded]) -> None:
        """Offer events to every subscriber; never waits."""
        for subscription in self._subscriptions:
            for item in recorded:
                if subscription.offer(item):
                    self._report(Trouble(subscription.name, "too slow: its queue is full", item.seq))

    def close(self) -> None:
        """End every iteration."""
        for subscription in self._subscriptions:
            subscription.close()

    async def deliver(self, subscription: Subscription, receive: Callable[[Item], None]) -> None:
        """Hand every item to a callback until the stream ends; a callback that raises is reported and goes on."""
        async for item in subscription:
            try:
                receive(item)
            except Exception as problem:  # noqa: BLE001 — foreign code; the run must not notice
                seq = item.seq if isinstance(item, Recorded) else item.last
                self._report(Trouble(subscription.name, f"raised {type(problem).__name__}: {problem}", seq))

    def _report(self, trouble: Trouble) -> None:
        self.troubles.append(trouble)
        _logger.warning("Subscriber %s at event %d: %s", trouble.subscriber, trouble.seq, trouble.what)
