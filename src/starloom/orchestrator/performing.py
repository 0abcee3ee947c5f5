"""Performing attempts: start, time out, stop, give up; for the runner, which gets back one signal an attempt.

start ─▶ executor ─▶ outcome ───────────────────────────────▶ AttemptEnded
│ stop, or its time is up: cancelled on the device
├─▶ lets go ─────────────────────────────────────▶ AttemptStopped, or AttemptEnded(Failed: its time was up)
└─▶ does not let go within the grace ─▶ the same, in doubt; later DeviceFreed
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

from starloom.clock import Clock
from starloom.errors import StoreError
from starloom.ids import AttemptId
from starloom.orchestrator import signals as s
from starloom.orchestrator.ports import Attempt, Failed, Outcome, TaskExecutor
from starloom.orchestrator.timers import Timeout, Timers
from starloom.patience import under

_logger = logging.getLogger(__name__)

Reconcile: TypeAlias = Callable[[Attempt], Awaitable[Outcome | None]]


class Performer:
    """The live attempts of one run.

    Args:
        executor: performs them.
        timers: the run's timers.
        clock: their clock.
        grace_s: how long a cancelled attempt may take to stop.
        report: gets the signals.
        broke: gets the error when an attempt's record could not be written: then nobody may say how it ended.
        reconcile: asked about attempts that were live before a restart.
    """

    def __init__(
        self,
        executor: TaskExecutor,
        timers: Timers,
        clock: Clock,
        grace_s: float,
        report: Callable[[s.Signal], None],
        broke: Callable[[StoreError], None],
        reconcile: Reconcile | None = None,
    ) -> None:
        self._executor = executor
        self._timers = timers
        self._clock = clock
        self._grace_s = grace_s
        self._report = report
        self._broke = broke
        self._reconcile = reconcile
        self._work: dict[AttemptId, tuple[Attempt, asyncio.Task[Outcome]]] = {}
        self._timeouts: dict[AttemptId, Timeout] = {}
        self._timed_out: set[AttemptId] = set()
        self._given_up: set[AttemptId] = set()
        self._is_closed = False

    def start(self, start: s.Start) -> None:
        """Begin an attempt."""
        attempt = start.attempt
        work = asyncio.create_task(self._in_time(start))
        self._work[attempt.attempt_id] = (attempt, work)
        work.add_done_callback(partial(self._performed, attempt))
        if attempt.timeout_s is not None:
            self._timeouts[attempt.attempt_id] = Timeout(
                self._timers,
                self._clock,
                ("timeout", attempt.attempt_id),
                attempt.timeout_s,
                partial(self._time_out, attempt),
            )

    def stop(self, attempt_id: AttemptId) -> None:
        """Stop an attempt on its device; nothing happens when it is over."""
        if attempt_id in self._work:
            attempt, work = self._work[attempt_id]
            work.cancel()
            self._timers.set(("grace", attempt_id), self._grace_s, partial(self._give_up, attempt))

    def close(self) -> list[asyncio.Task[Outcome]]:
        """Cancel everything, report nothing more, and return what is still stopping."""
        self._is_closed = True
        for timeout in self._timeouts.values():
            timeout.drop()
        tasks = [work for _, work in self._work.values()]
        for work in tasks:
            work.cancel()
        return tasks

    async def _in_time(self, start: s.Start) -> Outcome:
        """Perform under the attempt's timeout, which stands still while a person is asked."""
        timeout = self._timeouts.get(start.attempt.attempt_id)
        with under(timeout) if timeout is not None else nullcontext():
            return await (self._resume(start) if start.is_resumed else self._perform(start.attempt))

    async def _perform(self, attempt: Attempt) -> Outcome:
        try:
            return await self._executor.execute(attempt)
        except StoreError:
            raise
        except Exception as problem:  # noqa: BLE001 — the border of a task: whatever escapes is its failure
            return _escaped(attempt, problem)

    async def _resume(self, start: s.Start) -> Outcome:
        attempt = start.attempt
        try:
            outcome = None if self._reconcile is None else await self._reconcile(attempt)
            if outcome is not None:
                return outcome
            if start.is_idempotent:
                return await self._executor.execute(attempt)
        except StoreError:
            raise
        except Exception as problem:  # noqa: BLE001 — the border of a task
            return _escaped(attempt, problem)
        return Failed("The hub stopped during this attempt, and nobody knows how it ended.", in_doubt=True)

    def _performed(self, attempt: Attempt, work: "asyncio.Task[Outcome]") -> None:
        attempt_id = attempt.attempt_id
        self._work.pop(attempt_id, None)
        was_late = attempt_id in self._timed_out
        if (timeout := self._timeouts.pop(attempt_id, None)) is not None:
            timeout.drop()
            self._timed_out.discard(attempt_id)
        problem = None if work.cancelled() else work.exception()
        if self._is_closed:
            return
        if isinstance(problem, StoreError):
            self._broke(problem)
            return
        if work.cancelled() or was_late:
            self._timers.drop(("grace", attempt_id))
        if attempt_id in self._given_up:
            self._given_up.discard(attempt_id)
            self._report(s.DeviceFreed(attempt.device_id))
        elif not work.cancelled():
            self._report(s.AttemptEnded(attempt.task_id, attempt_id, attempt.device_id, work.result()))
        elif was_late:
            self._report(s.AttemptEnded(attempt.task_id, attempt_id, attempt.device_id, _late(attempt)))
        else:
            self._report(s.AttemptStopped(attempt.task_id, attempt_id, attempt.device_id))

    def _time_out(self, attempt: Attempt) -> None:
        self._timed_out.add(attempt.attempt_id)
        self.stop(attempt.attempt_id)

    def _give_up(self, attempt: Attempt) -> None:
        """Report an attempt that does not let go as over; its device stays occupied until it does."""
        attempt_id = attempt.attempt_id
        if attempt_id not in self._work:
            return
        self._given_up.add(attempt_id)
        if attempt_id in self._timed_out:
            late = _late(attempt)
            self._report(s.AttemptEnded(attempt.task_id, attempt_id, attempt.device_id, late, holds_device=True))
        else:
            self._report(s.AttemptStopped(attempt.task_id, attempt_id, attempt.device_id, in_doubt=True))


def _escaped(attempt: Attempt, problem: Exception) -> Failed:
    _logger.error("Attempt %s raised", attempt.attempt_id, exc_info=problem)
    return Failed(f"{type(problem).__name__}: {problem}", in_doubt=True)


def _late(attempt: Attempt) -> Failed:
    return Failed(f"It did not end within {attempt.timeout_s:g} s and was stopped.", in_doubt=True)
