"""`HostAgent`: splits a request into subtasks and gives each to the agent of an application; reads what came out.

    CONTINUE ──▶ status written                ASSIGN ──▶ the application's agent, in CONTINUE
    PENDING  ──▶ CONTINUE with the answer      CONFIRM ──▶ approved: ASSIGN · refused: FINISH (user_refused)
    FINISH, FAIL, ERROR end the round

Its only action is the assignment itself, so its pipeline has no ACTION_EXECUTION; what the application's agent does is
guarded there. Called by `session` as the first agent of a round.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starloom.agents.app_agent import AppAgent
from starloom.agents.assignment import Assignment
from starloom.agents.device_agent import AgentParts
from starloom.agents.plans import DeviceProfile
from starloom.agents.questions import put_question
from starloom.agents.record import Acted
from starloom.agents.replies import HostAgentResponse, reply_schema
from starloom.agents.resumption import PastStep
from starloom.agents.states import AgentState, AgentStateManager, BasicAgent
from starloom.agents.status import AgentStatus, Evidence, StopReason
from starloom.agents.strategies.guard import ASKED_BY_MODEL, REFUSED
from starloom.agents.strategies.host import RememberAssignment, ThinkOfSubtask
from starloom.agents.strategies.think import Thinker
from starloom.agents.untrusted import UntrustedText
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandStatus
from starloom.processing.names import ContextNames
from starloom.processing.processing_context import ProcessingContext, ProcessingPhase
from starloom.processing.processor import ProcessorTemplate
from starloom.safety.policy import Decision, ProposedAction, Risk, Verdict

HOST_STATES = AgentStateManager("HostAgent")


def applications_of(device: DeviceProfile) -> tuple[str, ...]:
    """Return the applications of a device: the groups of its tools, by what stands before the dot."""
    return tuple(dict.fromkeys(tool.name.partition(".")[0] for tool in device.tools))


class HostAgent(BasicAgent):
    """Leads one request on one device.

    Args:
        request: the whole request as an assignment; subtasks inherit its device, facts and run.
        most_failures: failed subtasks that it may answer with another plan; one more ends the round.
    """

    def __init__(self, parts: AgentParts, request: Assignment, *, most_failures: int = 2) -> None:
        super().__init__("HostAgent", HOST_STATES.copy())
        self.request = request
        self._parts = parts
        self._most_failures = most_failures
        self._failures = 0
        self._step = 0
        self._unproven = False
        self._unanswered = 0
        self._notes: list[str] = []
        self._apps: dict[str, AppAgent] = {}
        self._reply: HostAgentResponse | None = None
        self._untrusted = UntrustedText(parts.fence, parts.detect)
        self._processor = self._build_processor()

    @property
    def acting(self) -> BasicAgent:
        """The host as an agent that can act next."""
        return self

    @property
    def active(self) -> AppAgent:
        """The agent of the application that has the current subtask."""
        assert self._reply is not None  # noqa: S101 - ASSIGN is only reached through a reply
        return self._apps[self._reply.application]

    async def process(self, context: Context) -> None:
        """Decide on the next subtask, or that the request is done or cannot be."""
        self._step += 1
        past = self._past
        if past is not None:
            self._untrusted.suspect(past.suspicions)
        self._notes += self._parts.past.notes_before(self.name, self._step)
        step = await self._processor.process(
            context,
            agent=self.name,
            assignment=self.request,
            step=self._step,
            notes=tuple(self._notes),
            done=_previous(context),
        )
        self._notes.clear()
        self._follow(step)

    def create_subagent(self, context: Context) -> AppAgent:
        """Give the current subtask to its application's agent, which is made at the first time and reused after."""
        reply = self._reply
        assert reply is not None  # noqa: S101 - as above
        assignment = self._subtask(reply)
        app = self._apps.get(reply.application)
        if app is None:
            app = AppAgent(self._parts, assignment, host=self, application=reply.application)
            self._apps[reply.application] = app
        else:
            app.assign(assignment)
        context.set(ContextNames.SUBTASK, reply.current_subtask)
        context.set(ContextNames.HOST_MESSAGE, list(reply.message))
        context.set(ContextNames.APPLICATION_PROCESS_NAME, reply.application)
        return app

    def receive(self, stop_reason: StopReason, *, error: str | None, evidence: Evidence) -> None:
        """Take note of how a subtask ended; stand at CONTINUE, or at FAIL when too many have failed."""
        self.status = AgentStatus.CONTINUE
        if stop_reason is StopReason.FINISHED:
            self._unproven = self._unproven or evidence is Evidence.CLAIMED
            return
        self._failures += 1
        if self._failures > self._most_failures:
            self.end(AgentStatus.FAIL, StopReason.FAILED, error=f"Too many subtasks failed; the last: {error}")
            return
        self._notes.append(
            "The last subtask did not succeed. Plan another way, or write FAIL; do not repeat it as it is."
        )

    async def confirm(self, context: Context) -> None:
        """Ask for the assignment that the model wants confirmed, and make it if it is allowed."""
        del context
        reply = self._reply
        assert reply is not None  # noqa: S101 - CONFIRM is only reached through a reply
        action = ProposedAction(
            device_id=self.request.device.device_id,
            tool="assign",
            arguments={"application": reply.application, "subtask": reply.current_subtask},
            risk=Risk.EXTERNAL,
        )
        facts = replace(self.request.facts, suspicions=(*self.request.facts.suspicions, ASKED_BY_MODEL))
        past = self._past
        acted = past.outcome(0) if past is not None else None
        if acted is not None and acted.decision is Decision.ALLOW:
            self.status = AgentStatus.ASSIGN
            return
        verdict = await self._parts.gate.admit(action, facts, run_id=self.request.run_id, task_id=self.request.task_id)
        await self._note_assignment(action, verdict)
        if verdict.decision is Decision.ALLOW:
            self.status = AgentStatus.ASSIGN
            return
        refused = verdict.rule == REFUSED
        reason = StopReason.USER_REFUSED if refused else StopReason.POLICY_DENIED
        self.end(AgentStatus.FINISH if refused else AgentStatus.FAIL, reason, error=verdict.reason)

    async def ask_user(self, context: Context) -> None:
        """Ask the reply's questions and go on."""
        del context
        self.status = AgentStatus.CONTINUE
        for question in self._reply.questions if self._reply is not None else ():
            answer = await put_question(
                question, self._parts.interactor, self._parts.recorder, self._parts.ids, self._past
            )
            if answer is not None:
                self._parts.blackboard.add_questions(question, answer)
                self._notes.append(f"You asked: {question}\nThe user answered: {answer}")
                facts = self.request.facts
                trusted = f"{facts.trusted_text}\n{answer}"
                self.request = replace(self.request, facts=replace(facts, trusted_text=trusted))
                continue
            self._unanswered += 1
            if self._unanswered >= self._parts.limits.unanswered_questions:
                self.end(AgentStatus.FAIL, StopReason.FAILED, error=f"Nobody answered the question: {question}")
                return
            self._notes.append(f"Nobody can answer your question {question!r}. Decide with what you have.")

    @property
    def _past(self) -> PastStep | None:
        """The present step as it is on record; None: it is new."""
        return self._parts.past.step(self.name, self._step)

    async def _note_assignment(self, action: ProposedAction, verdict: Verdict) -> None:
        """Report what was decided about an assignment that the model wanted confirmed."""
        allowed = verdict.decision is Decision.ALLOW
        status = CommandStatus.SUCCESS if allowed else CommandStatus.SKIPPED
        error = None if allowed else f"not allowed: {verdict.reason}"
        arguments = dict(action.arguments)
        await self._parts.recorder(
            Acted(self.name, action.tool, arguments, verdict.decision, status, error=error, step=self._step)
        )

    def _follow(self, step: ProcessingContext) -> None:
        if step.error is not None:
            self.end(AgentStatus.ERROR, StopReason.ERROR, error=step.error.reason)
            return
        reply = step.require("reply", HostAgentResponse)
        self._reply = reply
        self.status = reply.status
        if reply.status == AgentStatus.FINISH:
            self.evidence = Evidence.CLAIMED if self._unproven or not self._apps else Evidence.CHECKED
            result = reply.result if reply.result is not None else reply.comment or None
            self.end(AgentStatus.FINISH, StopReason.FINISHED, result=result)
        elif reply.status == AgentStatus.FAIL:
            self.end(AgentStatus.FAIL, StopReason.FAILED, error=reply.comment or reply.thought)

    def _subtask(self, reply: HostAgentResponse) -> Assignment:
        device = self.request.device
        tools = tuple(tool for tool in device.tools if tool.name.partition(".")[0] == reply.application)
        return replace(
            self.request, goal=reply.current_subtask, tips=tuple(reply.message), device=replace(device, tools=tools)
        )

    def _build_processor(self) -> ProcessorTemplate:
        parts = self._parts
        thinker = Thinker(
            parts.model,
            reply_schema(HostAgentResponse, self.states),
            parts.recorder,
            agent=self.name,
            role="host",
            most_repairs=parts.limits.most_repairs,
            reply_tokens=parts.limits.reply_tokens,
            past=parts.past,
        )
        return ProcessorTemplate(
            {
                ProcessingPhase.LLM_INTERACTION: ThinkOfSubtask(
                    thinker,
                    self.memory,
                    self._untrusted,
                    statuses=self.states.words_for_models,
                    applications=applications_of(self.request.device),
                    limits=parts.limits,
                ),
                ProcessingPhase.MEMORY_UPDATE: RememberAssignment(self.memory),
            },
            clock=parts.clock,
            middleware=parts.middleware,
            initial={"agent": str, "assignment": Assignment, "step": int, "notes": tuple, "done": tuple},
        )


def _previous(context: Context) -> tuple[object, ...]:
    done = context.get(ContextNames.PREVIOUS_SUBTASKS)
    return tuple(done) if isinstance(done, Sequence) else ()


@HOST_STATES.register
class ContinueState(AgentState[HostAgent]):
    """Decide what comes next."""

    @classmethod
    def name(cls) -> str:
        """Return CONTINUE."""
        return AgentStatus.CONTINUE

    async def handle(self, agent: HostAgent, context: Context) -> None:
        """Run the pipeline once."""
        await agent.process(context)


@HOST_STATES.register
class AssignState(AgentState[HostAgent]):
    """The subtask goes to its application's agent, which acts next."""

    @classmethod
    def name(cls) -> str:
        """Return ASSIGN."""
        return AgentStatus.ASSIGN

    async def handle(self, agent: HostAgent, context: Context) -> None:
        """Make or reuse the application's agent; no model is asked."""
        agent.create_subagent(context)

    def next_state(self, agent: HostAgent) -> AgentState[Any]:
        """Return the application's agent's CONTINUE."""
        return agent.active.states.get_state(AgentStatus.CONTINUE)

    def next_agent(self, agent: HostAgent) -> BasicAgent:
        """Return the application's agent."""
        return agent.active


@HOST_STATES.register
class PendingState(AgentState[HostAgent]):
    """Wait for the user's answer."""

    @classmethod
    def name(cls) -> str:
        """Return PENDING."""
        return AgentStatus.PENDING

    async def handle(self, agent: HostAgent, context: Context) -> None:
        """Ask, and note the answer."""
        await agent.ask_user(context)


@HOST_STATES.register
class ConfirmState(AgentState[HostAgent]):
    """The assignment waits for a person's yes."""

    @classmethod
    def name(cls) -> str:
        """Return CONFIRM."""
        return AgentStatus.CONFIRM

    async def handle(self, agent: HostAgent, context: Context) -> None:
        """Ask."""
        await agent.confirm(context)


class _LastState(AgentState[HostAgent]):
    """A state that ends the round."""

    def is_round_end(self) -> bool:
        """Answer yes."""
        return True


@HOST_STATES.register
class FinishState(_LastState):
    """The request is done."""

    @classmethod
    def name(cls) -> str:
        """Return FINISH."""
        return AgentStatus.FINISH


@HOST_STATES.register
class FailState(_LastState):
    """The request cannot be done."""

    @classmethod
    def name(cls) -> str:
        """Return FAIL."""
        return AgentStatus.FAIL


@HOST_STATES.register
class ErrorState(_LastState):
    """Something broke."""

    model_may_write = False

    @classmethod
    def name(cls) -> str:
        """Return ERROR."""
        return AgentStatus.ERROR
