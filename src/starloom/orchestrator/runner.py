"""The runner: drives one run to its end; the thin asynchronous shell around the scheduler.

Called by the session. Everything that happens becomes a signal in one inbox with one owner, `_drive`. A batch of
signals is decided, its events are appended to the journal together, and only then is anything done: append, then act.

    inbox ─▶ scheduler.decide ─▶ journal.append ─▶ stream.publish ─▶ start, stop, wake, call the planner, reply, finish
      ▲                                                                    │
      └──────────── outcomes, devices, timers, answers ◀───────────────────┘

Why no TaskGroup owns the tasks: an attempt that does not let go within the grace time must not keep the run from
ending. `_close` waits for or cancels everything that was started.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TypeAlias, assert_never

from starloom.clock import Clock
from starloom.constellation.commands import Command as EditCommand
from starloom.constellation.conditions import Callables
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import normal_document, to_document
from starloom.constellation.problems import EditError
from starloom.constellation.statistics import statistics
from starloom.errors import Bug, StarloomError, StoreError
from starloom.ids import DeviceId, RunId, TaskId
from starloom.journal import events as e
from starloom.journal.events import Event, Json, Recorded
from starloom.journal.store import Journal
from starloom.orchestrator import signals as s
from starloom.orchestrator.endings import RunResult as RunResult, final_results, sealed, stop_reason
from starloom.orchestrator.performing import Performer, Reconcile
from starloom.orchestrator.ports import DeviceDirectory, Failed, TaskExecutor
from starloom.orchestrator.replanning import Replan, ReplanRequest
from starloom.orchestrator.requests import REQUESTS, Answer, Request
from starloom.orchestrator.scheduler import Scheduler
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import RunState, fold
from starloom.orchestrator.stream import EventStream
from starloom.orchestrator.timers import Timers

_logger = logging.getLogger(__name__)

_NO_KEYS: Mapping[int, str] = {}
_Asked: TypeAlias = "asyncio.Future[s.Reply | None]"


class Runner:
    """One run of one constellation.

    Args:
        run_id: the run; its journal and the ids of its attempts carry it.
        executor: performs attempts.
        devices: knows who is connected.
        clock: time for timers and records.
        journal: where events are committed; None keeps none, for measuring.
        settings: limits and policies.
        replan: asked when something calls for judgement; None: never.
        reconcile: asked, after a restart, how an attempt that was live has ended; None or its None: nobody knows.
        stream: gets every committed event.
        callables: registered Python conditions.
        let_go: called when the journal cannot be written, before live attempts are cancelled: what a device has begun
            it can finish, and its result waits there.
    """

    def __init__(
        self,
        run_id: RunId,
        *,
        executor: TaskExecutor,
        devices: DeviceDirectory,
        clock: Clock,
        journal: Journal | None = None,
        settings: RunSettings | None = None,
        replan: Replan | None = None,
        reconcile: Reconcile | None = None,
        stream: EventStream | None = None,
        callables: Callables | None = None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self.run_id = run_id
        self._devices = devices
        self._clock = clock
        self._journal = journal
        self._settings = settings or RunSettings()
        self._replan = replan
        self._stream = stream
        self._let_go = let_go
        self._broken: StoreError | None = None
        self._callables = callables
        self._state = RunState(run_id, callables)
        self._scheduler: Scheduler | None = None
        self._epoch: int | None = None
        self._seq = 0
        self._inbox: deque[tuple[s.Signal, _Asked | None]] = deque()
        self._wakeup = asyncio.Event()
        self._finish: s.Finish | None = None
        self._answered: dict[str, Answer] = {}
        self._is_closing = False
        self._timers = Timers(clock)
        grace_s = self._settings.stop_grace_s
        report, broke = self._attempt_over, self._journal_broke
        self._performer = Performer(executor, self._timers, clock, grace_s, report, broke, reconcile)
        self._others: set[asyncio.Task[None]] = set()

    @property
    def constellation(self) -> TaskConstellation:
        """The live graph; read only, edits go through `edit`."""
        return self._state.constellation

    @property
    def state(self) -> RunState:
        """The run's fold; read only."""
        return self._state

    def waits(self) -> dict[TaskId, str]:
        """Return what every unfinished task waits for."""
        return {} if self._scheduler is None else self._scheduler.waits()

    async def run(self, constellation: TaskConstellation, *, started: e.RunStarted | None = None) -> RunResult:
        """Run a constellation to its end. Being cancelled stops the attempts and leaves the run resumable.

        Args:
            constellation: the run's own from now on.
            started: written first; None when the caller has written it.
        """
        self._state.adopt(constellation)
        opening: list[Event] = [] if started is None else [started]
        opening.append(e.ConstellationStarted(constellation.constellation_id, constellation.name))
        opening.append(e.EditApplied(constellation.version, self._import(constellation), "import"))
        for event in opening:
            self._state.apply(event, self._clock.now())
        if self._journal is not None:
            self._epoch = await self._journal.take(self.run_id)
        await self._commit(opening)
        return await self._drive()

    def _import(self, constellation: TaskConstellation) -> list[Json]:
        if self._journal is None and self._stream is None:
            return []  # nobody could read it
        document = normal_document(constellation)
        name = "build_constellation"
        return [{"command": name, "document": document, "clear_existing": True, "with_state": True}]

    async def resume(self) -> RunResult:
        """Take up a run from its journal alone; one that has ended is only reported.

        Raises:
            StarloomError: the journal does not know the run.
        """
        if self._journal is None:
            raise Bug("A run without a journal cannot be resumed.")
        self._epoch = await self._journal.take(self.run_id)
        recorded = await self._journal.read(self.run_id)
        if not recorded:
            raise StarloomError(f"The journal holds no run {self.run_id!r}.", run_id=self.run_id)
        self._state = fold(self.run_id, recorded, self._callables)
        if self._state.is_over:
            return await self._report_again()
        keyed = await self._journal.keyed(REQUESTS, self.run_id)
        self._answered = {key: item.event for key, item in keyed if isinstance(item.event, Answer)}
        event = e.RunResumed("recovery")
        self._state.apply(event)
        await self._commit([event])
        return await self._drive()

    async def edit(
        self,
        commands: Sequence[Mapping[str, Json] | EditCommand],
        *,
        by: str = "user",
        why: str = "",
        against: int | None = None,
        request: Request | None = None,
    ) -> e.EditApplied:
        """Edit the constellation while it runs: all commands or none; returns when it is committed.

        A `request` that was sent before gets the answer it got then, in an earlier life of the run too.

        Raises:
            EditError: refused; nothing changed. `ConflictError` when it cannot be rebased on the newest version.
            KeyReused: the request's key was used for another one; nothing changed.
        """
        reply = await self._ask(s.EditProposed(commands, by, why, against, request=request))
        if reply is None or reply.edit is None:
            raise (reply.problem if reply and reply.problem else Bug("An edit got no reply."))
        return reply.edit

    async def undo(self, by: str = "user", request: Request | None = None) -> e.EditApplied | None:
        """Undo the newest edit; None when there is none. Raises EditError when it touches what has started."""
        return await self._step("undo", by, request)

    async def redo(self, by: str = "user", request: Request | None = None) -> e.EditApplied | None:
        """Make the newest undone edit again; None when there is none. Raises EditError when it cannot be made."""
        return await self._step("redo", by, request)

    async def pause(self, by: str = "user") -> None:
        """Hold new starts; live attempts go on."""
        await self._ask(s.PauseAsked(True, by))

    async def unpause(self, by: str = "user") -> None:
        """Allow starts again."""
        await self._ask(s.PauseAsked(False, by))

    async def cancel(self, by: str = "user", reason: str = "") -> None:
        """Stop the run: live attempts are stopped on their devices, everything else is withdrawn. Idempotent."""
        await self._ask(s.CancelAsked(by, reason))

    async def cancel_task(self, task_id: str, by: str = "user", reason: str = "") -> None:
        """Stop or withdraw one task; nothing happens when it has ended."""
        self._state.constellation.get_task(task_id)
        await self._ask(s.CancelAsked(by, reason, task_id=TaskId(task_id)))

    async def cancel_device(self, device_id: str, by: str = "user", reason: str = "") -> None:
        """Stop everything on one device, withdraw what is meant for it, and use it no more in this run."""
        await self._ask(s.CancelAsked(by, reason, device_id=DeviceId(device_id)))

    async def message(self, text: str) -> None:
        """Tell the planner something; without a planner nothing happens."""
        await self._ask(s.MessageGiven(text))

    # The one owner of the run's state

    async def _drive(self) -> RunResult:
        scheduler = Scheduler(
            self._state, self._settings, has_planner=self._replan is not None, answered=self._answered
        )
        self._scheduler = scheduler
        self._inbox.appendleft((s.Begin(), None))
        self._inbox.appendleft((self._offers(), None))
        self._wakeup.set()
        self._begin_other(self._watch_devices())
        try:
            while self._finish is None:
                await self._wakeup.wait()
                self._wakeup.clear()
                if self._broken is not None:
                    raise self._broken
                await self._turn(scheduler)
        except StoreError as error:
            self._stand_still(error)
            raise
        finally:
            await self._close()
        return self._result(self._finish.stop_reason, self._finish.error, self._finish.statistics)

    async def _turn(self, scheduler: Scheduler) -> None:
        """Decide everything in the inbox, commit what follows together, then act."""
        signals = [signal for signal, _ in self._inbox]
        asked = [(signal, answer) for signal, answer in self._inbox if answer is not None]
        decision = scheduler.decide(*signals, at=self._clock.now())
        for note in decision.notes:
            _logger.info("Run %s: %s", self.run_id, note)
        if decision.events:
            await self._commit(decision.events, decision.keys)
        for _ in signals:  # not before the commit: when that fails, those who asked are still there to be told
            self._inbox.popleft()
        replies = iter([command for command in decision.commands if isinstance(command, s.Reply)])
        for command in decision.commands:
            self._carry_out(command)
        for signal, answer in asked:
            reply = next(replies) if isinstance(signal, s.EditProposed) else None
            if not answer.done():
                answer.set_result(reply)

    async def _commit(self, events: Sequence[Event], keys: Mapping[int, str] = _NO_KEYS) -> None:
        if self._journal is not None:
            if isinstance(events[-1], e.RunEnded):
                events = [*events[:-1], sealed(events[-1], self._state.constellation)]
            named = [keys.get(place) for place in range(len(events))] if keys else ()
            recorded = await self._journal.append(self.run_id, events, keys=named, epoch=self._epoch)
            if self._stream is not None:
                self._stream.publish(recorded)
        elif self._stream is not None:
            now = self._clock.now()
            first = self._seq + 1
            self._seq += len(events)
            self._stream.publish([Recorded(self.run_id, first + i, now, event) for i, event in enumerate(events)])

    def _carry_out(self, command: s.Command) -> None:
        match command:
            case s.Start():
                self._performer.start(command)
            case s.Stop():
                self._performer.stop(command.attempt_id)
            case s.Wake():
                self._timers.set(command.key, command.after_s, partial(self._post, s.Woke(command.key)))
            case s.CallPlanner():
                self._begin_other(self._call_planner(command))
            case s.Finish():
                self._finish = command
            case s.Reply():
                pass  # `_turn` hands replies to those who asked
            case _:
                assert_never(command)

    def _post(self, signal: s.Signal) -> None:
        self._inbox.append((signal, None))
        self._wakeup.set()

    def _stand_still(self, error: StoreError) -> None:
        """The journal cannot be written: what was not committed is not done, and those who asked are told."""
        if self._let_go is not None:
            self._let_go()
        for _, asked in self._inbox:
            if asked is not None and not asked.done():
                asked.set_exception(error)
        self._inbox.clear()

    def _journal_broke(self, error: StoreError) -> None:
        self._broken = error
        self._wakeup.set()

    def _attempt_over(self, signal: s.Signal) -> None:
        if isinstance(signal, s.AttemptEnded) and isinstance(signal.outcome, Failed) and signal.outcome.in_doubt:
            self._post(self._offers())  # so that a lost device is known as lost
        self._post(signal)

    async def _ask(self, signal: s.Signal) -> s.Reply | None:
        if self._is_closing:
            if isinstance(signal, s.EditProposed):
                raise EditError("The run has ended; its constellation no longer changes.")
            return None
        asked: _Asked = asyncio.get_running_loop().create_future()
        self._inbox.append((signal, asked))
        self._wakeup.set()
        return await asked

    async def _step(self, action: str, by: str, request: Request | None) -> e.EditApplied | None:
        reply = await self._ask(s.EditProposed((), by, action=action, request=request))
        if reply is not None and reply.problem is not None:
            raise reply.problem
        return None if reply is None else reply.edit

    def _offers(self) -> s.DevicesChanged:
        return s.DevicesChanged(tuple(self._devices.offers()))

    async def _watch_devices(self) -> None:
        self._post(self._offers())  # what changed before anyone watched; nothing is awaited between this and the watch
        async for _ in self._devices.changes():
            self._post(self._offers())

    async def _call_planner(self, command: s.CallPlanner) -> None:
        constellation = self._state.constellation
        version = constellation.version
        request = ReplanRequest(self.run_id, version, command.surprises, partial(to_document, constellation))
        if self._replan is None:
            raise Bug("The scheduler called a planner that is not there.")
        try:
            draft = await self._replan(request)
        except Exception as problem:
            _logger.exception("The planner of run %s raised", self.run_id)
            self._post(s.PlannerAnswered(error=f"{type(problem).__name__}: {problem}"))
            return
        if draft is None:
            self._post(s.PlannerAnswered())
        else:
            self._post(s.PlannerAnswered(draft.commands, draft.why, version))

    def _begin_other(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _close(self) -> None:
        """Cancel and wait for everything that was started; what does not let go within the grace is left behind."""
        self._is_closing = True
        for _, asked in self._inbox:
            if asked is not None and not asked.done():
                asked.set_result(s.Reply(problem=EditError("The run has ended; its constellation no longer changes.")))
        self._inbox.clear()
        for task in self._others:
            task.cancel()
        started: list[asyncio.Task[Json]] = [*self._performer.close(), *self._timers.drop_all(), *self._others]
        if started:
            _, left = await asyncio.wait(started, timeout=self._settings.stop_grace_s)
            if left:
                _logger.warning("Run %s leaves %d attempts behind that do not stop", self.run_id, len(left))
        if self._stream is not None:
            self._stream.close()

    def _result(self, stop_reason: str, error: str | None, figures: dict[str, Json]) -> RunResult:
        constellation = self._state.constellation
        results = final_results(constellation)
        return RunResult(self.run_id, constellation.state, stop_reason, constellation, figures, error, results)

    async def _report_again(self) -> RunResult:
        ended = self._state.ended
        figures = statistics(self._state.constellation)
        if ended is None:
            return self._result(*stop_reason(self._state.constellation, 0), figures)
        return self._result(ended.stop_reason, ended.error, figures)
