"""The running system: takes requests and recipes in, and drives each as one run to its end.

Built by `session.build`; called by `hub` and `cli`. A run is one task of the galaxy's group: it may fail, be cancelled
or outlive its caller, and never takes another run with it. Whatever happens is in the journal before anyone is told.

    submit_request ─▶ plan ─▶ (a person says yes) ─▶ graph ─▶ runner ─▶ run_ended
    submit_recipe  ──────────────────────────────────┘
    resume, fork   ─▶ what the journal holds: from the plan, or from the graph, on
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starloom.agents.constellation_agent import ConstellationAgent
from starloom.agents.plans import Planner
from starloom.agents.structured_planner import StructuredPlanner
from starloom.background import Background
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import build
from starloom.constellation.recipe import parse_recipe
from starloom.errors import StarloomError, StoreError, UsageError
from starloom.fleet.fleet import Fleet
from starloom.ids import DeviceId, RunId
from starloom.journal.events import EditApplied, Json, PlanProposed, Recorded, RunCancelled, RunEnded, RunStarted
from starloom.journal.store import Journal, RunRecord
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.stream import EventStream
from starloom.safety.policy import Facts
from starloom.session.acknowledging import Acknowledgements
from starloom.session.desk import ApprovalDesk
from starloom.session.executor import Crew, FleetExecutor
from starloom.session.forking import forked
from starloom.session.halting import Halts, stop_reason_of, until_halted
from starloom.session.profiles import FleetDirectory, device_profiles
from starloom.session.recall import Recall, recall
from starloom.session.replanning import RequestReplanner
from starloom.session.thinking import Thinking
from starloom.session.trust import mark_repeatable, suspicions_in, words_of_graph, words_of_import

log = logging.getLogger(__name__)

_ACKNOWLEDGED_RUNS = 20  # ended runs whose results are acknowledged anew when the hub starts
_ACKNOWLEDGED_EVENTS = 20_000  # of a run; longer ones are not read for it
_YES = frozenset({"y", "yes", "j", "ja", "ok", "是"})

PlannerSource = Callable[[RunId], Awaitable[Planner]]


class Galaxy:
    """All runs of one hub; `here` is the id of its own device."""

    def __init__(
        self, crew: Crew, *, here: str, planner: PlannerSource, settings: RunSettings, tasks: Background
    ) -> None:
        self._crew = crew
        self._here = here
        self._planner = planner
        self._settings = settings
        self._tasks = tasks
        self._runs: dict[RunId, asyncio.Task[None]] = {}
        self._runners: dict[RunId, Runner] = {}
        self._executors: dict[RunId, FleetExecutor] = {}
        self._acknowledgements = Acknowledgements(crew.fleet)
        self.halts = Halts()

    @property
    def journal(self) -> Journal:
        """The journal of all runs."""
        return self._crew.journal

    @property
    def thinking(self) -> Thinking:
        """How far the models of each run are with their replies."""
        return self._crew.spending.thinking

    @property
    def fleet(self) -> Fleet:
        """The devices."""
        return self._crew.fleet

    @property
    def desk(self) -> ApprovalDesk:
        """Where people answer."""
        return self._crew.desk

    @property
    def here(self) -> str:
        """The id of the hub's own device."""
        return self._here

    def online_devices(self) -> list[str]:
        """Return the ids of the devices that can take work now."""
        return [record.device_id for record in self.fleet.records() if record.status.takes_work]

    async def submit_request(self, request: str, *, confirm_plan: bool = False, as_run: RunId | None = None) -> RunId:
        """Start planning and running a request; returns as soon as it is journalled.

        Args:
            request: what the user wants, in words.
            confirm_plan: ask at the desk before anything of the plan runs.
            as_run: the run's id; None: a new one.

        Raises:
            UsageError: the request is empty.
        """
        if not request.strip():
            raise UsageError("The request is empty. Say in one sentence what should be done.")
        run_id = as_run or RunId(self._crew.ids.new("run"))
        parameters = {"confirm_plan": True} if confirm_plan else {}
        await self.journal.append(run_id, [RunStarted(request, parameters=parameters)])
        self._start(run_id, lambda: self._plan_and_run(run_id, request, confirm_plan=confirm_plan))
        return run_id

    async def submit_recipe(
        self, document: Mapping[str, Any], values: Mapping[str, Any], as_run: RunId | None = None
    ) -> RunId:
        """Start a recipe, or any constellation document, with these parameters; no model is asked.

        Raises:
            UsageError: the document or a parameter is wrong; nothing was started.
        """
        recipe = parse_recipe(dict(document))
        bound = recipe.bind(dict(values))
        graph = recipe.instantiate(bound)
        run_id = as_run or RunId(self._crew.ids.new("run"))
        started = RunStarted(recipe.name or "recipe", source="recipe", parameters=bound)
        facts = Facts(trusted_text=words_of_graph(graph))
        self._start(run_id, lambda: self._run(run_id, graph, facts, started=started))
        return await self._begun(run_id)

    async def submit_goal(self, goal: str, device_id: DeviceId, as_run: RunId | None = None) -> RunId:
        """Start a run of one task: this goal, on this device."""
        document = {
            "name": goal[:60],
            "tasks": [{"task_id": "goal", "description": goal, "target_device_id": device_id}],
        }
        graph = build(document)
        run_id = as_run or RunId(self._crew.ids.new("run"))
        started = RunStarted(goal, source="goal", parameters={"device_id": device_id})
        self._start(run_id, lambda: self._run(run_id, graph, self._facts_of(goal), started=started))
        return await self._begun(run_id)

    async def resume(self, run_id: RunId) -> None:
        """Take up a run that has not ended, from the journal alone; nothing happens to one that is running here.

        Raises:
            UsageError: unknown, or already ended.
        """
        started = await self.known_run(run_id)
        if await self.ending(run_id) is not None:
            raise UsageError(f"Run {run_id!r} has ended; start it anew, or fork it.", run_id=run_id)
        if run_id in self._runs:
            return
        recorded = await self.journal.read(run_id)
        past = recall(recorded)
        self._crew.spending.take_up(run_id, recorded)
        for item in recorded:
            self._acknowledgements.note(item)
        for keeping in self.desk.restore(run_id, past):
            self._tasks.create_task(keeping)
        if any(isinstance(item.event, EditApplied) for item in recorded):
            self._start(run_id, lambda: self._resume(run_id, started, recorded, past))
        else:
            self._start(run_id, lambda: self._plan_on(run_id, started, recorded))

    async def resume_all(self) -> list[RunId]:
        """Take up every run that was interrupted; return which. One that cannot be read is logged and left alone."""
        records = await self.journal.runs(1000)
        taken = []
        for record in records:
            if record.stop_reason is not None or record.run_id in self._runs:
                continue
            try:
                await self.resume(record.run_id)
            except StarloomError as error:
                log.error("Run %s cannot be taken up: %s", record.run_id, error.message)
            else:
                taken.append(record.run_id)
        await self._acknowledge_anew([record for record in records if record.stop_reason is not None])
        return taken

    async def _acknowledge_anew(self, ended: Sequence[RunRecord]) -> None:
        """Make good what the last hub did not come to say; a device that is not told keeps a result for longer."""
        for record in ended[:_ACKNOWLEDGED_RUNS]:
            if record.last_seq <= _ACKNOWLEDGED_EVENTS:
                for item in await self.journal.read(record.run_id):
                    self._acknowledgements.note(item)

    async def fork(self, run_id: RunId, at: int) -> RunId:
        """Start a new run from a point in an old one; what had ended by then counts as done, the rest runs anew.

        Raises:
            UsageError: there is no such run or point, or nothing had been decided by then.
        """
        await self.known_run(run_id)
        events = forked(run_id, await self.journal.read(run_id), at)
        fork_id = RunId(self._crew.ids.new("run"))
        await self.journal.append(fork_id, events)
        await self.resume(fork_id)
        return fork_id

    def runner(self, run_id: RunId) -> Runner:
        """Return what drives a run that runs here; `changing` edits through it.

        Raises:
            UsageError: the run is not running in this hub.
        """
        runner = self._runners.get(run_id)
        if runner is None:
            raise UsageError(f"Run {run_id!r} is not running in this hub.", run_id=run_id)
        return runner

    async def acknowledge(self) -> None:
        """Tell devices which of their results are committed; for as long as the hub runs."""
        await self._acknowledgements.serve()

    async def cancel(self, run_id: RunId, *, by: str = "user") -> None:
        """Stop a run: its attempts are stopped on their devices, what waits is withdrawn, the end is journalled.

        Raises:
            UsageError: it is not running in this hub.
        """
        runner, task = self._runners.get(run_id), self._runs.get(run_id)
        if task is None:
            raise UsageError(f"Run {run_id!r} is not running in this hub.", run_id=run_id)
        if runner is not None:
            await runner.cancel(by=by)
            return
        task.cancel()
        await asyncio.wait([task])
        await self.journal.append(run_id, [RunCancelled(by=by), RunEnded("cancelled")])

    async def suspend(self, run_id: RunId) -> None:
        """Let go of a run without ending it; `resume` takes it up again, and what devices went on doing with it."""
        task = self._runs.get(run_id)
        if run_id in self._executors:
            self._executors[run_id].let_go()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Let go of all runs, while the devices are still there; then of the devices."""
        for run_id in list(self._runs):
            await self.suspend(run_id)
        await self.fleet.close()

    async def known_run(self, run_id: RunId) -> RunStarted:
        """Return how a run began.

        Raises:
            UsageError: the journal has no such run.
        """
        events = await self.journal.read(run_id)
        if not events or not isinstance(events[0].event, RunStarted):
            raise UsageError(f"There is no run {run_id!r}. `starloom runs` lists them.", run_id=run_id)
        return events[0].event

    async def ending(self, run_id: RunId) -> RunEnded | None:
        """Return how a run ended; None while it has not, or when it is unknown."""
        events = await self.journal.read(run_id)
        return next((item.event for item in reversed(events) if isinstance(item.event, RunEnded)), None)

    async def wait(self, run_id: RunId) -> RunEnded | None:
        """Return when the run is over in this hub; None: it was suspended."""
        task = self._runs.get(run_id)
        if task is not None:
            await asyncio.wait([task])
        return await self.ending(run_id)

    async def over(self, run_id: RunId) -> StoreError | None:
        """Return when the run is over in this hub, with the error when it stands still."""
        if run_id in self._runs:
            await asyncio.wait([self._runs[run_id]])
        return self.halts.of(run_id)

    def _start(self, run_id: RunId, work: Callable[[], Awaitable[None]]) -> None:
        self.halts.forget(run_id)
        task = self._tasks.create_task(self._guarded(run_id, work), name=run_id)
        self._runs[run_id] = task
        task.add_done_callback(lambda _: self._over(run_id))

    def _over(self, run_id: RunId) -> None:
        self._runs.pop(run_id, None)
        self._runners.pop(run_id, None)
        self._executors.pop(run_id, None)
        self.desk.forget(run_id)

    async def _begun(self, run_id: RunId) -> RunId:
        """Return once the run's first event is committed: from then on a stop of the hub cannot lose it."""
        await anext(until_halted(self.journal.follow(run_id), lambda: self.over(run_id)))
        return run_id

    async def _guarded(self, run_id: RunId, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._ended(run_id, work)
        except StoreError as error:
            self.halts.note(run_id, error)

    async def _ended(self, run_id: RunId, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work; whatever it fails with is the run's end, but for a journal that cannot be written."""
        try:
            await work()
        except StoreError:
            raise
        except StarloomError as error:
            await self._end(run_id, stop_reason_of(error), error.message)
        except Exception as error:  # the run's border: a bug ends this run, not the hub
            log.exception("run %s ended by a bug", run_id)
            await self._end(run_id, "error", f"Starloom has a bug: {type(error).__name__}. The log has the details.")

    async def _end(self, run_id: RunId, reason: str, error: str) -> None:
        if await self.ending(run_id) is None:
            await self.journal.append(run_id, [RunEnded(reason, error=self._crew.redactor.text(error))])

    async def _plan_and_run(self, run_id: RunId, request: str, *, confirm_plan: bool) -> None:
        agent = await self._agent(run_id)
        devices = device_profiles(self.fleet, here=self._here, has_agent=self._crew.model is not None)
        plan = await agent.create(request, devices)
        document = mark_repeatable(plan.document, devices) if plan.refusal is None else None
        proposed = PlanProposed(plan.summary, plan.draft.model, list(plan.draft.warnings), document)
        await self.journal.append(run_id, [proposed])
        if document is None:
            await self._end(run_id, "failed", f"The planner declined: {plan.refusal}")
            return
        await self._run_plan(run_id, request, document, agent, confirm_plan=confirm_plan)

    async def _run_plan(
        self, run_id: RunId, request: str, document: Json, agent: ConstellationAgent, *, confirm_plan: bool
    ) -> None:
        if confirm_plan and not await self._confirmed(run_id):
            await self._end(run_id, "user_refused", "The plan was not approved; nothing was run.")
            return
        await self._run(run_id, build(document), self._facts_of(request), self._replan(agent, request))

    async def _plan_on(self, run_id: RunId, started: RunStarted, recorded: Sequence[Recorded]) -> None:
        """Go on where the hub was stopped before anything had run: with the plan that was made, or to make one."""
        confirm_plan = bool(started.parameters.get("confirm_plan"))
        plans = [item.event.document for item in recorded if isinstance(item.event, PlanProposed)]
        if plans and plans[-1] is not None:
            agent = await self._agent(run_id)
            await self._run_plan(run_id, started.request, plans[-1], agent, confirm_plan=confirm_plan)
        else:
            await self._plan_and_run(run_id, started.request, confirm_plan=confirm_plan)

    async def _agent(self, run_id: RunId) -> ConstellationAgent:
        planner = await self._planner(run_id)
        return ConstellationAgent(planner, replanner=planner if isinstance(planner, StructuredPlanner) else None)

    def _replan(self, agent: ConstellationAgent, request: str) -> RequestReplanner | None:
        return RequestReplanner(agent, request, self.fleet, self._here) if agent.can_replan else None

    async def _confirmed(self, run_id: RunId) -> bool:
        answer = await self.desk.question(run_id, "Run this plan?")
        return answer.strip().lower() in _YES

    def _facts_of(self, request: str) -> Facts:
        return Facts(trusted_text=request, suspicions=suspicions_in(request))

    async def _run(
        self,
        run_id: RunId,
        graph: TaskConstellation,
        facts: Facts,
        replan: RequestReplanner | None = None,
        started: RunStarted | None = None,
    ) -> None:
        await self._runner(run_id, facts, replan, Recall()).run(graph, started=started)

    async def _resume(self, run_id: RunId, started: RunStarted, recorded: Sequence[Recorded], past: Recall) -> None:
        facts = self._facts_of(started.request)
        if started.source == "recipe":
            edits = [item.event for item in recorded if isinstance(item.event, EditApplied)]
            facts = Facts(trusted_text=words_of_import(edits[0].commands))
        replan = None
        if started.source == "request" and self._crew.model is not None:
            replan = self._replan(await self._agent(run_id), started.request)
        await self._runner(run_id, facts, replan, past).resume()

    def _runner(self, run_id: RunId, facts: Facts, replan: RequestReplanner | None, past: Recall) -> Runner:
        executor = FleetExecutor(self._crew, run_id, facts, self._settings, past)
        stream = EventStream()
        self._tasks.create_task(self._acknowledgements.follow(stream))
        runner = Runner(
            run_id,
            executor=executor,
            devices=FleetDirectory(self.fleet),
            clock=self._crew.clock,
            journal=self.journal,
            settings=self._settings,
            replan=replan,
            reconcile=executor.reattach,
            stream=stream,
            let_go=executor.let_go,
        )
        self._runners[run_id], self._executors[run_id] = runner, executor
        return runner
