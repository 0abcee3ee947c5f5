"""What runs have spent on models, from the journal into the ledger; and what they spend, into the journal.

Called by `build` when a hub starts, by the galaxy when it takes up a run, and by `models` and `executor`, which wrap
what a run asks. The journal's records are the memory: a restart forgets no budget, and no call that it interrupted.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from starloom.clock import Clock
from starloom.ids import RunId
from starloom.journal.events import CostRecorded, Recorded
from starloom.journal.store import Journal
from starloom.llm.budgets import Allowance, Ledger, Told, Watch, Watching
from starloom.llm.port import Progress, Usage
from starloom.session.costs import cost_recorded, usage_of
from starloom.session.open_calls import Note, OpenCalls
from starloom.session.run_spans import RunSpans
from starloom.session.thinking import Thinking

_RUNS = 1_000  # how far back a start looks for today's


@dataclass(frozen=True, slots=True)
class Spending:
    """One hub's ledger, where its records are, and what is seen of the calls under way.

    Attributes:
        open_calls: the notes of calls under way; None keeps none, for a hub whose calls need not outlive it.
        spans: where a call's span stands; None: nothing is traced.
    """

    ledger: Ledger
    journal: Journal
    clock: Clock
    open_calls: OpenCalls | None = None
    thinking: Thinking = field(default_factory=Thinking)
    spans: RunSpans | None = None

    def of_task(self, run_id: RunId, task_id: str) -> Allowance:
        """Return what a task may use; its agent journals each reply, this what gave none."""
        waste = self._recording(run_id, "shell", task_id)
        watching = self._watching(run_id, "shell", task_id)
        return Allowance(self.ledger, self.clock, run=run_id, task=task_id, told_of_waste=waste, watching=watching)

    def of_planning(self, run_id: RunId) -> Allowance:
        """Return what a run's planner may use; each of its calls is journalled."""
        record = self._recording(run_id, "constellation")
        watching = self._watching(run_id, "constellation")
        return Allowance(self.ledger, self.clock, run=run_id, told=record, told_of_waste=record, watching=watching)

    def _recording(self, run_id: RunId, role: str, task_id: str = "") -> Told:
        async def record(model: str, usage: Usage) -> None:
            await self.journal.append(run_id, [cost_recorded(role, model, usage, task_id)])

        return record

    def _watching(self, run_id: RunId, role: str, task_id: str = "") -> Watching:
        @contextmanager
        def watching(model: str) -> Iterator[Watch]:
            with ExitStack() as stack:
                stack.callback(self.thinking.ended, run_id, task_id)
                if self.spans is not None:
                    stack.enter_context(self.spans.call(run_id, task_id))
                note = None
                if self.open_calls is not None:
                    note = stack.enter_context(self.open_calls.noted(run_id, role, model, task_id))
                yield _Watch(self.thinking, run_id, task_id, note)

        return watching

    async def count_open_calls(self) -> None:
        """Journal what an earlier hub had sent when it was killed; once, however often a start is interrupted."""
        for name, call in self.open_calls.left_over() if self.open_calls else ():
            if await self.journal.read(call.run_id):
                event = cost_recorded(call.role, call.model, call.usage, call.task_id)
                await self.journal.append(call.run_id, [event], keys=[f"open_call:{name}"])
            if self.open_calls is not None:
                self.open_calls.forget(name)

    async def take_up_today(self) -> None:
        """Count what runs have used, so that a day's budget holds over a restart."""
        if self.ledger.budgets.day.is_unlimited:
            return
        today = self.clock.now().date()
        for record in await self.journal.runs(_RUNS):
            if record.ended_at is None or record.ended_at.date() >= today:
                self.take_up(record.run_id, await self.journal.read(record.run_id))

    def take_up(self, run_id: RunId, recorded: Iterable[Recorded]) -> None:
        """Count what a run has used; nothing when it is counted already."""
        if not self.ledger.take_up(run_id):
            return
        for item in recorded:
            match item.event:
                case CostRecorded(task_id=task_id) as cost:
                    self.ledger.add(usage_of(cost), run=run_id, task=task_id, day=item.at.date())
                case _:
                    pass


@dataclass(frozen=True, slots=True)
class _Watch:
    """Sees one call of a run."""

    thinking: Thinking
    run_id: RunId
    task_id: str
    note: Note | None

    def sent(self, usage: Usage) -> None:
        if self.note is not None:
            self.note.write(usage)

    def heard(self, progress: Progress) -> None:
        self.thinking.heard(self.run_id, self.task_id, progress)
