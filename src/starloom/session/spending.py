"""What runs have spent on models, from the journal into the ledger; and what they spend, into the journal.

Called by `build` when a hub starts, by the galaxy when it takes up a run, and by `models` and `executor`, which wrap
what a run asks. The journal's records are the memory: a restart forgets no budget.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from starloom.clock import Clock
from starloom.ids import RunId
from starloom.journal.events import CostRecorded, Recorded
from starloom.journal.store import Journal
from starloom.llm.budgets import Allowance, Ledger, Told
from starloom.llm.port import Usage

_RUNS = 1_000  # how far back a start looks for today's


@dataclass(frozen=True, slots=True)
class Spending:
    """One hub's ledger and where its records are."""

    ledger: Ledger
    journal: Journal
    clock: Clock

    def of_task(self, run_id: RunId, task_id: str) -> Allowance:
        """Return what a task may use; its agent journals each reply, this what gave none."""
        waste = self._recording(run_id, "shell", task_id)
        return Allowance(self.ledger, self.clock, run=run_id, task=task_id, told_of_waste=waste)

    def of_planning(self, run_id: RunId) -> Allowance:
        """Return what a run's planner may use; each of its calls is journalled."""
        record = self._recording(run_id, "constellation")
        return Allowance(self.ledger, self.clock, run=run_id, told=record, told_of_waste=record)

    def _recording(self, run_id: RunId, role: str, task_id: str = "") -> Told:
        async def record(model: str, usage: Usage) -> None:
            cost = CostRecorded(role, model, usage.input_tokens, usage.output_tokens, usage.cost, task_id)
            await self.journal.append(run_id, [cost])

        return record

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
                case CostRecorded(input_tokens=given, output_tokens=written, cost=cost, task_id=task_id):
                    usage = Usage(given, written, cost=cost)
                    self.ledger.add(usage, run=run_id, task=task_id, day=item.at.date())
                case _:
                    pass
