"""MEMORY_UPDATE: what the agent keeps of a step, and what others may see of it on the blackboard.

Results come from the device: what is shown of them is fenced once, here, and stays so in every later prompt.
"""

from collections.abc import Mapping, Sequence

from starloom.agents.blackboard import Blackboard
from starloom.agents.memory import Memory, MemoryItem, clip
from starloom.agents.prompts import as_text
from starloom.agents.replies import AppAgentResponse, DeviceAgentResponse
from starloom.agents.strategies.act import ActionOutcome
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.agents.strategies.think import reply_text
from starloom.agents.untrusted import UntrustedText
from starloom.llm.port import Image
from starloom.processing.dispatch import CommandStatus
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import StrategyDependency, depends_on, provides


@depends_on(
    StrategyDependency("screenshot", required=False, expected_type=Image | None, default_value=None),
    reply=DeviceAgentResponse,
    guarded=Guarded,
    outcomes=tuple,
    step=int,
)
@provides(memory_item=MemoryItem)
class RememberStep:
    """Adds a `MemoryItem` to the agent's memory, and a line for each action that succeeded to the blackboard."""

    name = "RememberStep"
    fail_fast = False

    def __init__(self, memory: Memory, blackboard: Blackboard, untrusted: UntrustedText, *, agent: str) -> None:
        self._memory = memory
        self._blackboard = blackboard
        self._untrusted = untrusted
        self._agent = agent

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Remember the step."""
        reply = context.require("reply", DeviceAgentResponse)
        outcomes: Sequence[ActionOutcome] = context.require("outcomes", tuple)
        item = MemoryItem(
            step=context.require("step", int),
            reply=reply_text(reply),
            outcome="\n".join(self._line(outcome) for outcome in outcomes) or "No action was made.",
            status=reply.status,
            actions=tuple(outcome.action.model_dump(mode="json") for outcome in outcomes),
            succeeded=all(outcome.succeeded for outcome in outcomes),
        )
        if context.require("guarded", Guarded).ruling is not Ruling.HELD:  # its second half will be remembered
            self._memory.add_memory_item(item)
        for outcome in outcomes:
            if outcome.succeeded:
                done = f"{outcome.action.tool} {as_text(outcome.action.arguments)}"
                self._blackboard.add_trajectories(clip(done, 100), self._agent)
        self._keep_picture(reply, context.get_local("screenshot"))
        return {"memory_item": item}

    def _keep_picture(self, reply: DeviceAgentResponse, picture: object) -> None:
        """Keep the step's picture when the model chose to, with its reason."""
        if isinstance(reply, AppAgentResponse) and reply.save_screenshot.save and isinstance(picture, Image):
            self._blackboard.add_image(picture, reply.save_screenshot.reason, self._agent)

    def _line(self, outcome: ActionOutcome) -> str:
        tool, shown = outcome.action.tool, outcome.shown
        match outcome.result.status:
            case CommandStatus.SKIPPED:
                return f"{tool} was skipped: {shown}"
            case CommandStatus.FAILURE:
                return f"{tool} failed:\n{self._untrusted.show_tool(shown, f'error of {tool}')}"
            case CommandStatus.SUCCESS:
                return f"{tool} succeeded:\n{self._untrusted.show_tool(shown, tool)}"
