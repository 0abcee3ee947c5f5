"""`Round`: one request from its first step to a named end; its loop is four lines, the states do the rest.

`run_goal` is a round of a device agent without a host: how a task with a goal in words is done on one device. Called by
`Session` and by whoever executes a constellation's tasks.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starloom.agents.assignment import AgentLimits, Assignment
from starloom.agents.blackboard import Blackboard
from starloom.agents.device_agent import AgentParts
from starloom.agents.plans import DeviceProfile
from starloom.agents.ports import ActionGate, Fence, Interactor, Recorder
from starloom.agents.resumption import AgentPast
from starloom.agents.shell_agent import LinuxAgent
from starloom.agents.states import BasicAgent
from starloom.agents.status import Evidence, StopReason
from starloom.agents.untrusted import Detector, suspicions_in
from starloom.clock import Clock
from starloom.errors import StarloomError, StoreError
from starloom.ids import Ids, RunId
from starloom.llm.port import Model, Usage
from starloom.patience import under
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandDispatcher, Json
from starloom.processing.names import ContextNames
from starloom.safety.policy import Facts
from starloom.session.step import Step, StepRecorder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a round stops by itself; None: no limit. The time stands still while a person is asked."""

    max_steps: int | None = 30
    max_rounds: int | None = 20
    time_s: float | None = 900.0
    max_tokens: int | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """How a request ended. `evidence` says what a success rests on; `error` is set for every other end."""

    request: str
    stop_reason: StopReason
    result: Json = None
    error: str | None = None
    evidence: Evidence = Evidence.CLAIMED
    steps: tuple[Step, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(requests=0))
    duration_s: float = 0.0

    @property
    def completed(self) -> bool:
        """Whether the request was done."""
        return self.stop_reason is StopReason.FINISHED


GoalOutcome = RoundOutcome
"""The end of a goal on one device is the end of its round."""


class Round:
    """One request. Runs once.

    Args:
        recorder: the middleware that the round's agents were built with; the round reads its steps.
        number: the round's number in its session, from 0.
    """

    def __init__(
        self,
        request: str,
        agent: BasicAgent,
        context: Context,
        recorder: StepRecorder,
        *,
        clock: Clock,
        limits: Limits | None = None,
        number: int = 0,
    ) -> None:
        self.request = request
        self.agent = agent
        self._context = context
        self._recorder = recorder
        self._clock = clock
        self._limits = limits or Limits()
        self._number = number

    async def run(self) -> RoundOutcome:
        """Run to the end and return it; only a cancellation is raised."""
        started = self._clock.monotonic()
        self._open()
        stopped: tuple[StopReason, str] | None
        deadline = asyncio.timeout(self._limits.time_s)
        thinking = _PeoplesTime(self._clock, deadline)
        try:
            async with deadline:
                with under(thinking):
                    stopped = await self._loop(started, thinking)
        except TimeoutError as error:
            if deadline.expired():
                stopped = (StopReason.TIME_LIMIT, f"The limit of {self._limits.time_s} seconds was reached.")
            else:  # someone else's wait, such as a person's answer
                stopped = (StopReason.ERROR, f"Something took too long: {str(error) or 'no answer came'}.")
        except StoreError:
            raise  # what was done is not on record: nobody may say how it ended
        except StarloomError as error:
            stopped = (StopReason.ERROR, error.message)
        except Exception as error:  # noqa: BLE001 - border: a task; whatever breaks ends with a reason
            _LOG.exception("The round %s broke.", self._number)
            stopped = (StopReason.ERROR, f"{type(error).__name__}: {error}")
        return self._outcome(stopped, self._clock.monotonic() - started)

    async def _loop(self, started: float, thinking: "_PeoplesTime") -> tuple[StopReason, str] | None:
        while not self.agent.state.is_round_end():
            limit = self._limit_reached(self._clock.monotonic() - started - thinking.total_s)
            if limit is not None:
                return limit
            await self.agent.handle(self._context)
            state = self.agent.state.next_state(self.agent)
            self.agent = self.agent.state.next_agent(self.agent)
            self.agent.set_state(state)
            if state.is_subtask_end():
                self._context.current_round_subtask_amount += 1
        return None

    def _open(self) -> None:
        context = self._context
        context.set(ContextNames.CURRENT_ROUND_ID, self._number)
        context.set(ContextNames.REQUEST, self.request)
        for name in (ContextNames.ROUND_STEP, ContextNames.ROUND_COST, ContextNames.ROUND_SUBTASK_AMOUNT):
            context.update_dict(name, {self._number: 0})

    def _limit_reached(self, elapsed_s: float) -> tuple[StopReason, str] | None:
        limits = self._limits
        usage = self._recorder.usage
        tokens = usage.input_tokens + usage.output_tokens
        table = (
            (StopReason.STEP_LIMIT, self._context.current_round_step, limits.max_steps, "steps"),
            (StopReason.TIME_LIMIT, elapsed_s, limits.time_s, "seconds"),
            (StopReason.TOKEN_LIMIT, tokens, limits.max_tokens, "tokens"),
            (StopReason.COST_LIMIT, self._context.current_round_cost, limits.max_cost, "US dollars"),
        )
        for reason, used, limit, unit in table:
            if limit is not None and used >= limit:
                return reason, f"The limit of {limit} {unit} was reached."
        return None

    def _outcome(self, stopped: tuple[StopReason, str] | None, duration_s: float) -> RoundOutcome:
        agent = self.agent
        reason, error = stopped or (agent.stop_reason, agent.error)
        if reason is None:
            reason, error = StopReason.ERROR, f"{agent.name} came to {agent.status} without a reason."
        result = agent.result if reason is StopReason.FINISHED else None
        self._context.set(ContextNames.ROUND_RESULT, result if isinstance(result, str) else "")
        return RoundOutcome(
            request=self.request,
            stop_reason=reason,
            result=result,
            error=None if reason is StopReason.FINISHED else error or reason.value,
            evidence=agent.evidence,
            steps=self._recorder.steps,
            usage=self._recorder.usage if self._recorder.steps else Usage(requests=0),
            duration_s=duration_s,
        )


class _PeoplesTime:
    """The time in which people were asked; the round's deadline stands still for as long."""

    def __init__(self, clock: Clock, deadline: asyncio.Timeout) -> None:
        self.total_s = 0.0
        self._clock = clock
        self._deadline = deadline
        self._holds = 0
        self._since = 0.0
        self._left_s: float | None = None

    def hold(self) -> None:
        """Stop the time."""
        self._holds += 1
        if self._holds == 1:
            self._since = self._clock.monotonic()
            when = self._deadline.when()
            if when is not None and not self._deadline.expired():
                self._left_s = when - asyncio.get_running_loop().time()
                self._deadline.reschedule(None)

    def go_on(self) -> None:
        """Let the time go on, with what was left of it."""
        self._holds -= 1
        if not self._holds:
            self.total_s += self._clock.monotonic() - self._since
            if self._left_s is not None:
                self._deadline.reschedule(asyncio.get_running_loop().time() + self._left_s)
                self._left_s = None


async def run_goal(
    goal: str,
    *,
    device: DeviceProfile,
    dispatcher: CommandDispatcher,
    model: Model,
    gate: ActionGate,
    facts: Facts,
    run_id: RunId,
    fence: Fence,
    recorder: Recorder,
    clock: Clock,
    ids: Ids,
    task_id: str = "",
    tips: Sequence[str] = (),
    inputs: Mapping[str, Json] | None = None,
    interactor: Interactor | None = None,
    detect: Detector = suspicions_in,
    limits: Limits | None = None,
    agent_limits: AgentLimits | None = None,
    blackboard: Blackboard | None = None,
    past: AgentPast | None = None,
) -> GoalOutcome:
    """Have a device's agent reach a goal in words and return how it ended; never raise for a failed goal.

    - `goal` and `tips` go to the model as they are; `inputs` (results of earlier tasks by their names) are fenced.
    - `device`: the agent may use the tools listed here and no other.
    - `facts`: what the policy may rest on; its trusted text is the user's own words.
    - `fence` marks everything from the device or earlier tasks as data; `detect` names what in it looks like an order,
      which raises what the policy asks about.
    - `interactor` answers questions in words; None: nobody does.
    - `past`: what an agent that was cut off had lived through; this one goes on from there, its steps and costs count.

    When cancelled, the dispatcher stops the work on the device first, then `CancelledError` goes out.
    """
    steps = StepRecorder(clock)
    context = Context()
    context.attach_command_dispatcher(dispatcher)
    context.set(ContextNames.MODE, "service")
    context.update_dict(ContextNames.TOOL_INFO, {tool.name: tool.description for tool in device.tools})
    parts = AgentParts(
        model=model,
        dispatcher=dispatcher,
        gate=gate,
        recorder=recorder,
        fence=fence,
        clock=clock,
        ids=ids,
        interactor=interactor,
        detect=detect,
        limits=agent_limits or AgentLimits(),
        blackboard=blackboard or Blackboard(),
        middleware=(steps,),
        past=past or AgentPast(),
    )
    assignment = Assignment(goal, device, facts, run_id, task_id=task_id, tips=tuple(tips), inputs=dict(inputs or {}))
    agent = LinuxAgent(parts, assignment)
    return await Round(goal, agent, context, steps, clock=clock, limits=limits).run()
