"""The scheduler: decides what a run does next, purely; the runner only performs.

`decide(signal)` has no `await`, no clock and no input or output: it moves the run's state on by the events that follow
from the signal and returns them with the commands to carry out after they are in the journal. A completion costs its
edges, an edit what it changed. Nothing polls. Source: constellation.md, Scheduling and Invariants.

    signal ─▶ handler ─▶ settle (conditions, unreachable, newly ready) ─▶ dispatch ─▶ missing devices ─▶ planner ─▶ end?
"""

from collections.abc import Mapping
from datetime import datetime
from typing import assert_never

from starloom.constellation.constellation import why_unreachable
from starloom.constellation.enums import CancelReason
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.references import ReferenceProblem
from starloom.constellation.star import TaskStar
from starloom.constellation.statistics import statistics
from starloom.ids import DeviceId, TaskId, attempt_id
from starloom.journal import events as e
from starloom.orchestrator import signals as s
from starloom.orchestrator.assignment import Assignment
from starloom.orchestrator.attempts import build_attempt
from starloom.orchestrator.editing import Editing
from starloom.orchestrator.endings import end_event, final_results, gives_up_lost, retry_delay, stop_reason, why_waiting
from starloom.orchestrator.ports import Completed, DeviceOffer, Failed
from starloom.orchestrator.ranks import Ranks
from starloom.orchestrator.replanning import Surprise
from starloom.orchestrator.requests import Answer
from starloom.orchestrator.results import mismatch
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import LiveAttempt, RunState
from starloom.orchestrator.surprises import Surprises

_LOST = "device_lost"


class Scheduler:
    """The decisions of one run. Only `decide` moves `state` from now on.

    Args:
        state: the run so far.
        settings: limits and policies.
        has_planner: surprises can be answered.
        answered: what came of requests before a restart, by their keys in the journal.
    """

    def __init__(
        self,
        state: RunState,
        settings: RunSettings,
        *,
        has_planner: bool = False,
        answered: Mapping[str, Answer] | None = None,
    ) -> None:
        self.state = state
        self._settings = settings
        self._surprises = Surprises(settings, has_planner=has_planner)
        self._assignment = Assignment()
        self._ranks = Ranks()
        self._editing = Editing(state, self._assignment, self._ranks, self._emit, answered or {})
        self._stopping: dict[TaskId, tuple[str, str]] = {}
        self._barred: set[DeviceId] = set()
        self._offers: tuple[DeviceOffer, ...] = ()
        self._has_begun = False
        self._decision = s.Decision()
        self._at: datetime | None = None
        self._unplaced = 0
        self._reported: dict[TaskId, str] = {}  # what a task was last said to lack, while a timer runs for it

    def decide(self, *signals: s.Signal, at: datetime | None = None) -> s.Decision:
        """Move the run on by signals that came together and return what follows; `at` is noted as the time.

        There is one `Reply` for each proposed edit, in their order.
        """
        self._decision, self._at = s.Decision(), at
        for signal in signals:
            if not self.state.is_over:
                self._take(signal)
            elif isinstance(signal, s.EditProposed):
                self._command(s.Reply(problem=EditError("The run has ended; its constellation no longer changes.")))
        if self._has_begun and not self.state.is_over:
            self._go_on()
        return self._decision

    def waits(self) -> dict[TaskId, str]:
        """Return for every unfinished task what it waits for (I7)."""
        return {
            star.task_id: why_waiting(self.state, self._assignment, star)
            for star in self.state.constellation.graph.tasks.values()
            if not star.status.is_terminal
        }

    def _take(self, signal: s.Signal) -> None:  # noqa: C901 — one line a signal
        match signal:
            case s.Begin():
                self._begin()
            case s.AttemptEnded():
                self._attempt_ended(signal)
            case s.AttemptStopped():
                self._attempt_stopped(signal)
            case s.DeviceFreed():
                self._assignment.free(signal.device_id)
            case s.DevicesChanged():
                self._devices_changed(signal.offers)
            case s.Woke():
                self._woke(signal.key)
            case s.EditProposed():
                self._command(self._editing.propose(signal))
            case s.PlannerAnswered():
                self._planner_answered(signal)
            case s.PauseAsked():
                if signal.on != self.state.is_paused:
                    self._emit(e.RunPaused(signal.by) if signal.on else e.RunResumed(signal.by))
            case s.CancelAsked():
                self._cancel(signal)
            case s.MessageGiven():
                self._surprises.add(Surprise("message", detail=signal.text))
            case _:
                assert_never(signal)

    def _go_on(self) -> None:
        while True:
            self._settle()
            if not self._dispatch() and not self._report_missing():
                break
        self._call_planner()
        self._end_if_done()

    def _emit(self, event: e.Event, key: str | None = None) -> None:
        self.state.apply(event, self._at)
        if key is not None:
            self._decision.keys[len(self._decision.events)] = key
        self._decision.events.append(event)

    def _command(self, command: s.Command) -> None:
        self._decision.commands.append(command)

    # Signals

    def _begin(self) -> None:
        state = self.state
        self._has_begun = True
        self._ranks.compute(state.constellation)
        state.constellation.ledger.take_fresh()
        for star in list(state.constellation.ready.values()):
            if not state.backing_off.get(star.task_id):
                self._make_ready(star)
        for live in list(state.live.values()):
            self._assignment.occupy_device(live.device_id)
            star = state.constellation.get_task(live.task_id)
            attempt = build_attempt(state, star, live, self._settings.default_timeout_s)
            self._command(s.Start(attempt, is_resumed=True, is_idempotent=star.spec.idempotent))
            if not self._assignment.is_offered(live.device_id):
                self._command(s.Wake(("lost", live.device_id), self._settings.device_lost_s))
        for task_id, delay_s in state.backing_off.items():
            self._command(s.Wake(("retry", task_id), delay_s))
        self._surprises.recall(state.unanswered, state.planner_edits)
        if not state.constellation.task_count:
            self._surprises.add(Surprise("empty"))

    def _attempt_ended(self, signal: s.AttemptEnded) -> None:
        if (live := self._owner_of(signal)) is None:
            return
        star = self.state.constellation.get_task(live.task_id)
        stopping = self._stopping.pop(live.task_id, None)
        outcome = signal.outcome
        if isinstance(outcome, Completed):
            problem = mismatch(star.spec.expected_output_type, outcome.result)
            if problem is not None:
                outcome = Failed(problem)
        if not signal.holds_device:
            self._assignment.free(live.device_id, isinstance(outcome, Completed))
        if isinstance(outcome, Completed):
            self._emit(e.TaskCompleted(live.task_id, live.number, outcome.result))
            if star.spec.replan:
                self._surprises.add(Surprise("asked", live.task_id))
            elif self._surprises.wants_completions:
                self._surprises.add(Surprise("completed", live.task_id))
        elif stopping is not None and stopping[0] != _LOST:
            self._emit(e.TaskCancelled(live.task_id, stopping[0], stopping[1] or outcome.error))
        else:
            lost = outcome.interrupted or (outcome.in_doubt and not self._assignment.is_offered(live.device_id))
            self._attempt_failed(star, live, outcome, is_lost=lost or stopping is not None)

    def _attempt_stopped(self, signal: s.AttemptStopped) -> None:
        if (live := self._owner_of(signal)) is None:
            return
        if not signal.in_doubt:
            self._assignment.free(live.device_id)
        reason, detail = self._stopping.pop(live.task_id, (CancelReason.USER.value, ""))
        if reason == _LOST:
            star = self.state.constellation.get_task(live.task_id)
            outcome = Failed(f"Device {live.device_id!r} was lost during the task.", in_doubt=True)
            self._attempt_failed(star, live, outcome, is_lost=True)
            return
        if signal.in_doubt:
            detail = f"{detail} (the device did not confirm that it stopped)".strip()
        self._emit(e.TaskCancelled(live.task_id, reason, detail))

    def _owner_of(self, signal: s.AttemptEnded | s.AttemptStopped) -> LiveAttempt | None:
        """Return the live attempt that the signal is about; None when it is a second or a stranger's (I5)."""
        live = self.state.live.get(signal.task_id)
        if live is None or live.attempt_id != signal.attempt_id or live.device_id != signal.device_id:
            self._decision.notes.append(
                f"ignored {type(signal).__name__} of {signal.attempt_id} from {signal.device_id}: not the live attempt"
            )
            return None
        return live

    def _attempt_failed(self, star: TaskStar, live: LiveAttempt, outcome: Failed, *, is_lost: bool) -> None:
        delay_s = retry_delay(star, outcome, self._settings, is_lost=is_lost)
        if delay_s is not None and not self.state.is_cancelled:
            self._emit(e.TaskRetrying(live.task_id, live.number, outcome.error, delay_s))
            if delay_s:
                self._command(s.Wake(("retry", live.task_id), delay_s))
            return
        self._emit(e.TaskFailed(live.task_id, live.number, outcome.error, outcome.in_doubt))
        self._surprises.add(Surprise("failed", live.task_id, outcome.error))

    def _devices_changed(self, offers: tuple[DeviceOffer, ...]) -> None:
        if offers == self._offers and not self._barred:
            return
        self._offers = offers
        allowed = [offer for offer in offers if offer.device_id not in self._barred]
        new, gone = self._assignment.set_offers(allowed)
        if not self._has_begun:
            return
        for offer in new:
            self._emit(e.DeviceConnected(offer.device_id, offer.device_type))
        for device_id in gone:
            self._emit(e.DeviceDisconnected(device_id))
            if any(live.device_id == device_id for live in self.state.live.values()):
                self._command(s.Wake(("lost", device_id), self._settings.device_lost_s))

    def _woke(self, key: tuple[str, str]) -> None:
        kind, name = key
        task_id = TaskId(name)
        constellation = self.state.constellation
        if kind == "retry" and task_id in self.state.backing_off and task_id in constellation.ready:
            self._make_ready(constellation.get_task(name))
        elif kind == "device" and self._reported.pop(task_id, "") and (reason := self._assignment.lacks(task_id)):
            self._fail_unserved(constellation.get_task(name), reason)
        elif kind == "lost" and not self._assignment.is_offered(DeviceId(name)):
            for live in list(self.state.live.values()):
                if live.device_id == name and gives_up_lost(self.state, live, self._settings):
                    self._stop(live, _LOST, "")

    def _planner_answered(self, signal: s.PlannerAnswered) -> None:
        self._surprises.is_answering = False
        if signal.error is not None:
            self._decision.notes.append(f"the planner could not be had: {signal.error}")
        if not signal.commands:
            return
        proposed = s.EditProposed(signal.commands, "planner", signal.why, signal.against)
        try:
            self._editing.make(proposed)
        except ConstellationError as problem:
            self._editing.refuse(proposed, problem)
            self._surprises.add(Surprise("edit_refused", detail=problem.message))

    def _cancel(self, signal: s.CancelAsked) -> None:
        constellation = self.state.constellation
        if signal.device_id is not None:
            self._barred.add(signal.device_id)
            self._devices_changed(self._offers)
            on_it = {live.task_id for live in self.state.live.values() if live.device_id == signal.device_id}
            chosen = [
                star
                for star in constellation.graph.tasks.values()
                if star.task_id in on_it or star.spec.target_device_id == signal.device_id
            ]
            self._withdraw_all(chosen, CancelReason.USER, f"device {signal.device_id!r} was cancelled")
        elif signal.task_id is not None:
            chosen = [constellation.get_task(signal.task_id)]
            self._withdraw_all(chosen, CancelReason.USER, signal.reason or f"cancelled by {signal.by}")
        elif not self.state.is_cancelled:
            self._emit(e.RunCancelled(signal.by, signal.reason))
            self._surprises.clear()
            self._withdraw_all(constellation.graph.in_order(), CancelReason.RUN_CANCELLED, signal.reason)

    def _withdraw_all(self, stars: list[TaskStar], reason: CancelReason, detail: str) -> None:
        for star in stars:
            live = self.state.live.get(star.task_id)
            if live is not None:
                self._stop(live, reason.value, detail)
            elif not star.status.is_terminal:
                self._assignment.withdraw(star.task_id)
                self._emit(e.TaskCancelled(star.task_id, reason.value, detail))

    def _stop(self, live: LiveAttempt, reason: str, detail: str) -> None:
        if live.task_id not in self._stopping:
            self._command(s.Stop(live.task_id, live.attempt_id))
        if reason != _LOST or live.task_id not in self._stopping:
            self._stopping[live.task_id] = (reason, detail)

    # What follows

    def _settle(self) -> None:
        constellation = self.state.constellation
        while constellation.undecided or constellation.doomed:
            for line in list(constellation.undecided.values()):
                satisfied, error = constellation.ask_condition(line)
                self._emit(e.EdgeDecided(line.line_id, satisfied, error))
            for star in list(constellation.doomed.values()):
                self._assignment.withdraw(star.task_id)
                why = why_unreachable(star)
                self._emit(e.TaskCancelled(star.task_id, CancelReason.UNREACHABLE.value, why))
                if not self.state.is_cancelled:
                    self._surprises.add(Surprise("unreachable", star.task_id, why))
        for star in constellation.ledger.take_fresh():
            if star.task_id in constellation.ready and not self.state.backing_off.get(star.task_id):
                self._make_ready(star)

    def _make_ready(self, star: TaskStar) -> None:
        if self._assignment.queue(star, self._ranks.of(star)):
            self._emit(e.TaskReady(star.task_id))

    def _dispatch(self) -> bool:
        """Start what can start; return whether a task failed in trying, so that there is more to settle."""
        state, limit = self.state, self._settings.max_concurrent_tasks
        failed = False
        while not state.is_paused and not state.is_cancelled and (limit is None or len(state.live) < limit):
            taken = self._assignment.take_next()
            if taken is None:
                break
            star, slot = taken
            number = star.attempt + 1
            device_id = slot.offer.device_id
            live = LiveAttempt(star.task_id, number, attempt_id(state.run_id, star.task_id, number), device_id)
            try:
                attempt = build_attempt(state, star, live, self._settings.default_timeout_s)
            except ReferenceProblem as problem:
                self._fail(star, problem.message)
                failed = True
                continue
            self._assignment.occupy(slot)
            self._emit(e.TaskStarted(star.task_id, number, live.attempt_id, device_id))
            self._command(s.Start(attempt))
        return failed

    def _report_missing(self) -> bool:
        """Report ready tasks that no connected device fits; return whether one failed for it at once."""
        failed = False
        wait_s = self._settings.device_wait_s
        for star, reason in self._assignment.unserved():
            if self._reported.get(star.task_id) != reason:
                self._reported[star.task_id] = reason
                self._emit(e.TaskWaiting(star.task_id, reason))
                if wait_s:
                    self._command(s.Wake(("device", star.task_id), wait_s))
            if wait_s == 0:
                self._fail_unserved(star, reason)
                failed = True
        return failed

    def _fail_unserved(self, star: TaskStar, reason: str) -> None:
        self._assignment.withdraw(star.task_id)
        self._unplaced += 1
        self._fail(star, f"Nothing could run it: {reason}.")

    def _fail(self, star: TaskStar, error: str) -> None:
        self._emit(e.TaskFailed(star.task_id, star.attempt, error))
        self._surprises.add(Surprise("failed", star.task_id, error))

    def _call_planner(self) -> None:
        if not self.state.is_cancelled and (surprises := self._surprises.hand_over()):
            self._command(s.CallPlanner(surprises))

    def _end_if_done(self) -> None:
        state, constellation = self.state, self.state.constellation
        if constellation.unfinished_count or state.live or (self._surprises.is_answering and not state.is_cancelled):
            return
        reason, error = stop_reason(constellation, self._unplaced)
        figures = statistics(constellation)
        self._emit(end_event(constellation, reason, error, figures))
        if self._settings.writes_run_ended:
            self._emit(e.RunEnded(reason, constellation.state.value, error, final_results(constellation)))
        self._command(s.Finish(reason, error, figures))
