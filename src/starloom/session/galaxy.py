"""The running system: takes requests and recipes in, and drives each as one run to its end.

Built by `session.build`; called by `hub` and `cli`. A run is one task of the galaxy's group: it may fail, be cancelled
or outlive its caller, and never takes another run with it. Whatever happens is in the journal before anyone is told.

    submit_request ─▶ plan ─▶ (a person says yes) ─▶ graph ─▶ runner ─▶ run_ended
    submit_recipe  ──────────────────────────────────┘
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starloom.agents.constellation_agent import ConstellationAgent
from starloom.agents.plans import Planner
from starloom.agents.structured_planner import StructuredPlanner
from starloom.background import Background
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import build
from starloom.constellation.recipe import parse_recipe
from starloom.errors import DeviceError, ModelError, StarloomError, UsageError
from starloom.fleet.fleet import Fleet
from starloom.ids import DeviceId, RunId
from starloom.journal.events import CostRecorded, EditApplied, PlanProposed, RunCancelled, RunEnded, RunStarted
from starloom.journal.store import Journal
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import RunSettings
from starloom.safety.policy import Facts
from starloom.session.desk import ApprovalDesk
from starloom.session.executor import Crew, FleetExecutor
from starloom.session.profiles import FleetDirectory, device_profiles
from starloom.session.replanning import RequestReplanner
from starloom.session.trust import mark_repeatable, suspicions_in, words_of_edit, words_of_graph

log = logging.getLogger(__name__)

_YES = frozenset({"y", "yes", "j", "ja", "ok", "是"})

PlannerSource = Callable[[], Awaitable[Planner]]


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

    @property
    def journal(self) -> Journal:
        """The journal of all runs."""
        return self._crew.journal

    @property
    def fleet(self) -> Fleet:
        """The devices."""
        return self._crew.fleet

    @property
    def desk(self) -> ApprovalDesk:
        """Where people answer."""
        return self._crew.desk

    def online_devices(self) -> list[str]:
        """Return the ids of the devices that can take work now."""
        return [record.device_id for record in self.fleet.records() if record.status.takes_work]

    async def submit_request(self, request: str, *, confirm_plan: bool = False) -> RunId:
        """Start planning and running a request; returns as soon as it is journalled.

        Args:
            request: what the user wants, in words.
            confirm_plan: ask at the desk before anything of the plan runs.

        Raises:
            UsageError: the request is empty.
        """
        if not request.strip():
            raise UsageError("The request is empty. Say in one sentence what should be done.")
        run_id = RunId(self._crew.ids.new("run"))
        await self.journal.append(run_id, [RunStarted(request)])
        self._start(run_id, lambda: self._plan_and_run(run_id, request, confirm_plan=confirm_plan))
        return run_id

    async def submit_recipe(self, document: Mapping[str, Any], values: Mapping[str, Any]) -> RunId:
        """Start a recipe, or any constellation document, with these parameters; no model is asked.

        Raises:
            UsageError: the document or a parameter is wrong; nothing was started.
        """
        recipe = parse_recipe(dict(document))
        bound = recipe.bind(dict(values))
        graph = recipe.instantiate(bound)
        run_id = RunId(self._crew.ids.new("run"))
        name = recipe.name or "recipe"
        await self.journal.append(run_id, [RunStarted(name, source="recipe", parameters=bound)])
        facts = Facts(trusted_text=words_of_graph(graph))
        self._start(run_id, lambda: self._run(run_id, graph, facts))
        return run_id

    async def submit_goal(self, goal: str, device_id: DeviceId) -> RunId:
        """Start a run of one task: this goal, on this device."""
        document = {
            "name": goal[:60],
            "tasks": [{"task_id": "goal", "description": goal, "target_device_id": device_id}],
        }
        graph = build(document)
        run_id = RunId(self._crew.ids.new("run"))
        await self.journal.append(run_id, [RunStarted(goal, source="goal", parameters={"device_id": device_id})])
        self._start(run_id, lambda: self._run(run_id, graph, self._facts_of(goal)))
        return run_id

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
        has_graph = any(isinstance(item.event, EditApplied) for item in await self.journal.read(run_id))
        if has_graph:
            self._start(run_id, lambda: self._resume(run_id, started))
        else:  # stopped while planning: nothing has run, so the request is planned again
            self._start(run_id, lambda: self._plan_and_run(run_id, started.request, confirm_plan=False))

    async def resume_all(self) -> list[RunId]:
        """Take up every run that was interrupted; return which."""
        open_runs = [record.run_id for record in await self.journal.runs(1000) if record.stop_reason is None]
        waiting = [run_id for run_id in open_runs if run_id not in self._runs]
        for run_id in waiting:
            await self.resume(run_id)
        return waiting

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
        """Let go of a run without ending it: attempts stop, the journal stays open, `resume` takes it up again."""
        task = self._runs.get(run_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Let go of all runs, stopping their attempts while the devices are still there; then of the devices."""
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

    def _start(self, run_id: RunId, work: Callable[[], Awaitable[None]]) -> None:
        task = self._tasks.create_task(self._guarded(run_id, work), name=run_id)
        self._runs[run_id] = task
        task.add_done_callback(lambda _: self._runs.pop(run_id, None))

    async def _guarded(self, run_id: RunId, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StarloomError as error:
            reason = "error" if not isinstance(error, ModelError | DeviceError) else "failed"
            await self._end(run_id, reason, error.message)
        except Exception as error:  # the run's border: a bug ends this run, not the hub
            log.exception("run %s ended by a bug", run_id)
            await self._end(run_id, "error", f"Starloom has a bug: {type(error).__name__}. The log has the details.")

    async def _end(self, run_id: RunId, reason: str, error: str) -> None:
        if await self.ending(run_id) is None:
            await self.journal.append(run_id, [RunEnded(reason, error=self._crew.redactor.text(error))])

    async def _plan_and_run(self, run_id: RunId, request: str, *, confirm_plan: bool) -> None:
        agent = await self._agent()
        devices = device_profiles(self.fleet, here=self._here, has_agent=self._crew.model is not None)
        plan = await agent.create(request, devices)
        usage = plan.draft.usage
        cost = CostRecorded("constellation", plan.draft.model, usage.input_tokens, usage.output_tokens, usage.cost)
        proposed = PlanProposed(plan.summary, plan.draft.model, list(plan.draft.warnings))
        await self.journal.append(run_id, [cost, proposed])
        if plan.refusal is not None:
            await self._end(run_id, "failed", f"The planner declined: {plan.refusal}")
            return
        if confirm_plan and not await self._confirmed(run_id):
            await self._end(run_id, "user_refused", "The plan was not approved; nothing was run.")
            return
        graph = build(mark_repeatable(plan.document, devices))
        await self._run(run_id, graph, self._facts_of(request), self._replan(agent, request))

    async def _agent(self) -> ConstellationAgent:
        planner = await self._planner()
        return ConstellationAgent(planner, replanner=planner if isinstance(planner, StructuredPlanner) else None)

    def _replan(self, agent: ConstellationAgent, request: str) -> RequestReplanner | None:
        return RequestReplanner(agent, request, self.fleet, self._here) if agent.can_replan else None

    async def _confirmed(self, run_id: RunId) -> bool:
        answer = await self.desk.question(run_id, "Run this plan?")
        return answer.strip().lower() in _YES

    def _facts_of(self, request: str) -> Facts:
        return Facts(trusted_text=request, suspicions=suspicions_in(request))

    async def _run(
        self, run_id: RunId, graph: TaskConstellation, facts: Facts, replan: RequestReplanner | None = None
    ) -> None:
        runner = self._runner(run_id, facts, replan)
        try:
            await runner.run(graph)
        finally:
            self._runners.pop(run_id, None)

    async def _resume(self, run_id: RunId, started: RunStarted) -> None:
        facts = self._facts_of(started.request)
        if started.source == "recipe":
            edits = [item.event for item in await self.journal.read(run_id) if isinstance(item.event, EditApplied)]
            facts = Facts(trusted_text=words_of_edit(edits[0].commands))
        replan = None
        if started.source == "request" and self._crew.model is not None:
            replan = self._replan(await self._agent(), started.request)
        runner = self._runner(run_id, facts, replan)
        try:
            await runner.resume()
        finally:
            self._runners.pop(run_id, None)

    def _runner(self, run_id: RunId, facts: Facts, replan: RequestReplanner | None) -> Runner:
        runner = Runner(
            run_id,
            executor=FleetExecutor(self._crew, run_id, facts),
            devices=FleetDirectory(self.fleet),
            clock=self._crew.clock,
            journal=self.journal,
            settings=self._settings,
            replan=replan,
        )
        self._runners[run_id] = runner
        return runner
