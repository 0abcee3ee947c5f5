"""`DeviceAgent`: the brain of one device — a pipeline of collect, think, guard, act and remember, and what follows.

`shell_agent.LinuxAgent` and `app_agent.AppAgent` are its two forms; they differ in their states, role and reply schema.
Its states call `process` for a step, `ask_user` when it is PENDING and `confirm` when its action waits for a yes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from starloom.agents.assignment import AgentLimits, Assignment
from starloom.agents.blackboard import Blackboard
from starloom.agents.conclusion import conclude
from starloom.agents.ports import ActionGate, Fence, Interactor, Recorder
from starloom.agents.questions import put_question
from starloom.agents.repeats import RepeatWatch
from starloom.agents.replies import DeviceAgentResponse, reply_schema
from starloom.agents.resumption import AgentPast, PastStep
from starloom.agents.states import AgentStateManager, BasicAgent
from starloom.agents.status import AgentStatus, Evidence, StopReason
from starloom.agents.strategies.act import ActionOutcome, ActThroughDispatcher
from starloom.agents.strategies.collect import CollectWorkspace
from starloom.agents.strategies.guard import GuardActions, Guarded, Ruling
from starloom.agents.strategies.remember import RememberStep
from starloom.agents.strategies.think import Thinker
from starloom.agents.strategies.think_device import ThinkOfNextStep
from starloom.agents.untrusted import Detector, UntrustedText, suspicions_in
from starloom.clock import Clock
from starloom.ids import Ids
from starloom.llm.port import Model
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandDispatcher
from starloom.processing.middleware import ProcessorMiddleware
from starloom.processing.processing_context import ProcessingContext, ProcessingPhase
from starloom.processing.processor import ProcessorTemplate
from starloom.safety.policy import Risk

Phase = ProcessingPhase


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What a device agent is built from; the composition root fills it in.

    An agent that is given a `past` lives through it again first, without doing anything that is on record.
    """

    model: Model
    dispatcher: CommandDispatcher
    gate: ActionGate
    recorder: Recorder
    fence: Fence
    clock: Clock
    ids: Ids
    interactor: Interactor | None = None
    detect: Detector = suspicions_in
    limits: AgentLimits = field(default_factory=AgentLimits)
    blackboard: Blackboard = field(default_factory=Blackboard)
    middleware: tuple[ProcessorMiddleware, ...] = ()
    past: AgentPast = field(default_factory=AgentPast)


class DeviceAgent(BasicAgent):
    """An agent with a device. Built once; `assign` gives it a goal, and may do so again when one has ended."""

    model_role = "shell"

    def __init__(
        self,
        name: str,
        states: AgentStateManager,
        parts: AgentParts,
        assignment: Assignment,
        *,
        role: str = "",
        schema: type[DeviceAgentResponse] = DeviceAgentResponse,
    ) -> None:
        super().__init__(name, states)
        self._parts = parts
        self._role = role
        self._schema = reply_schema(schema, states)
        self._step = 0
        self.assign(assignment)

    def assign(self, assignment: Assignment) -> None:
        """Start on a goal: counts, notes and suspicions anew; the memory of earlier goals and its numbers go on."""
        self.assignment = assignment
        self.status = AgentStatus.CONTINUE
        self.set_state(self.states.get_state(self.status))
        self.stop_reason, self.result, self.error = None, None, None
        self.evidence = Evidence.CLAIMED
        self._denials = 0
        self._unanswered = 0
        self._asked_about_circles = False
        self._notes: list[str] = []
        self._questions: tuple[str, ...] = ()
        self._held: ProcessingContext | None = None
        self._untrusted = UntrustedText(self._parts.fence, self._parts.detect)
        self._repeats = RepeatWatch()
        self._processor = self._build_processor()
        self._confirmation = self._build_confirmation()

    async def process(self, context: Context) -> None:
        """Make one step and stand at the status that follows from it."""
        self._step += 1
        self._recall()
        step = await self._processor.process(
            context, agent=self.name, assignment=self.assignment, step=self._step, notes=self._notes_for_prompt()
        )
        self._notes.clear()
        self._follow(step)
        if self.status == AgentStatus.CONFIRM:
            self._held = step

    async def confirm(self, context: Context) -> None:
        """Have the held actions judged again with a person asked, and carry them out if that admits them."""
        held, self._held = self._held, None
        if held is None or held.get_local("reply") is None:
            self.end(AgentStatus.ERROR, StopReason.ERROR, error="A confirmation was asked for without an action.")
            return
        step = await self._confirmation.process(
            context,
            agent=self.name,
            assignment=self.assignment,
            step=self._step,
            reply=held.require("reply", DeviceAgentResponse),
            tools=held.require("tools", tuple),
            screen_digest=held.require("screen_digest", str),
        )
        self._follow(step)

    async def ask_user(self, context: Context) -> None:
        """Ask the last reply's questions and go on with the answers; end when nobody answers for the second time."""
        del context
        self.status = AgentStatus.CONTINUE
        for question in self._questions:
            answer = await put_question(
                question, self._parts.interactor, self._parts.recorder, self._parts.ids, self._past
            )
            if answer is not None:
                self._parts.blackboard.add_questions(question, answer)
                facts = self.assignment.facts
                trusted = f"{facts.trusted_text}\n{answer}"
                self.assignment = replace(self.assignment, facts=replace(facts, trusted_text=trusted))
                continue
            self._unanswered += 1
            if self._unanswered >= self._parts.limits.unanswered_questions:
                self.end(AgentStatus.FAIL, StopReason.FAILED, error=f"Nobody answered the question: {question}")
                return
            self._notes.append(
                f"Nobody can answer your question {question!r}. Decide with what you have, or write FAIL and say what "
                "is missing."
            )

    @property
    def suspicions(self) -> tuple[str, ...]:
        """What in the texts it has read looked like an attempt to give orders."""
        return self._untrusted.suspicions

    @property
    def _past(self) -> PastStep | None:
        """The present step as it is on record; None: it is new."""
        return self._parts.past.step(self.name, self._step)

    def _recall(self) -> None:
        """Before a step: suspect what was suspected, or say with the first new step that there was an interruption."""
        if self._past is not None:
            self._untrusted.suspect(self._past.suspicions)
        self._notes += self._parts.past.notes_before(self.name, self._step)

    def _follow(self, step: ProcessingContext) -> None:
        """Draw the conclusion from a step."""
        if step.error is not None:
            self.end(AgentStatus.ERROR, StopReason.ERROR, error=step.error.reason)
            return
        reply = step.require("reply", DeviceAgentResponse)
        guarded = step.require("guarded", Guarded)
        outcomes: tuple[ActionOutcome, ...] = step.require("outcomes", tuple)
        self._questions = tuple(reply.questions)
        self._denials += guarded.ruling is Ruling.DENIED
        self._weigh(outcomes, step)
        end = conclude(
            reply,
            guarded,
            outcomes,
            denials=self._denials,
            most_denials=self._parts.limits.most_denials,
            can_ask=self._parts.interactor is not None and not self._asked_about_circles,
        )
        if guarded.ruling is Ruling.REPEATED:
            self._asked_about_circles = True
            self._questions = (
                f"I keep trying {guarded.actions[0].tool} and nothing changes. What should I do instead?",
            )
        if end.stop_reason is not None:
            self.end(end.status, end.stop_reason, error=end.error, result=end.result)
        self.status = end.status

    def _weigh(self, outcomes: Sequence[ActionOutcome], step: ProcessingContext) -> None:
        """Keep book of what is proven and of what no longer repeats itself."""
        risks = {tool.name: tool.risk for tool in self.assignment.device.tools}
        changed = False
        for outcome in outcomes:
            if not outcome.succeeded:
                continue
            if risks.get(outcome.action.tool) is Risk.READ:
                self.evidence = Evidence.CHECKED
            else:
                self.evidence = Evidence.CLAIMED
                changed = True
        if changed:
            self._repeats.changed([outcome.action for outcome in outcomes], step.require("screen_digest", str))
        repeats = step.get_local("repeats", 0)
        if isinstance(repeats, int) and repeats == self._parts.limits.most_repeats - 1:
            self._notes.append(
                "You have made this same step before, on the same folder. Once more ends the work without success: do "
                "something else."
            )

    def _notes_for_prompt(self) -> tuple[str, ...]:
        board, _ = self._parts.blackboard.blackboard_to_prompt(self._untrusted.show, without_source=self.name)
        return (board, *self._notes) if board else tuple(self._notes)

    def _build_processor(self) -> ProcessorTemplate:
        parts = self._parts
        thinker = Thinker(
            parts.model,
            self._schema,
            parts.recorder,
            agent=self.name,
            role=self.model_role,
            most_repairs=parts.limits.most_repairs,
            reply_tokens=parts.limits.reply_tokens,
            past=parts.past,
        )
        return ProcessorTemplate(
            {
                Phase.DATA_COLLECTION: CollectWorkspace(parts.dispatcher, parts.past),
                Phase.LLM_INTERACTION: ThinkOfNextStep(
                    thinker,
                    self.memory,
                    self._repeats,
                    self._untrusted,
                    statuses=self.states.words_for_models,
                    role=self._role,
                    limits=parts.limits,
                ),
                Phase.GUARD: GuardActions(parts.gate, self._untrusted, parts.past),
                **self._last_phases(),
            },
            clock=parts.clock,
            middleware=parts.middleware,
            initial={"agent": str, "assignment": Assignment, "step": int, "notes": tuple},
        )

    def _build_confirmation(self) -> ProcessorTemplate:
        parts = self._parts
        guard = GuardActions(parts.gate, self._untrusted, parts.past, confirming=True)
        return ProcessorTemplate(
            {Phase.GUARD: guard, **self._last_phases()},
            clock=parts.clock,
            middleware=parts.middleware,
            initial={
                "agent": str,
                "assignment": Assignment,
                "step": int,
                "reply": DeviceAgentResponse,
                "tools": tuple,
                "screen_digest": str,
            },
        )

    def _last_phases(self) -> dict[ProcessingPhase, ActThroughDispatcher | RememberStep]:
        parts = self._parts
        return {
            Phase.ACTION_EXECUTION: ActThroughDispatcher(
                parts.dispatcher, parts.recorder, parts.past, agent=self.name, limits=parts.limits
            ),
            Phase.MEMORY_UPDATE: RememberStep(self.memory, parts.blackboard, self._untrusted, agent=self.name),
        }
