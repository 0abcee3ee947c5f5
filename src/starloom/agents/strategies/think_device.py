"""LLM_INTERACTION of a device agent: its prompt, its checks, and a look at whether it goes in circles."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from starloom.agents.arguments import call_problems
from starloom.agents.assignment import AgentLimits, Assignment
from starloom.agents.memory import Memory, clip
from starloom.agents.plans import ToolProfile
from starloom.agents.prompts import PromptBudget, goal_text, step_messages, system_text
from starloom.agents.repeats import RepeatWatch
from starloom.agents.replies import DeviceAgentResponse, device_reply_problems
from starloom.agents.strategies.think import Thinker
from starloom.agents.untrusted import UntrustedText
from starloom.llm.port import Usage
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import depends_on, provides

D = TypeVar("D", bound=DeviceAgentResponse)


@depends_on(assignment=Assignment, step=int, notes=tuple, tools=tuple, screen=str, screen_digest=str)
@provides(reply=DeviceAgentResponse, usage=Usage, llm_cost=float | None, repeats=int, repeated=bool)
class ThinkOfNextStep:
    """Gives the model's `reply`, what it cost, and how often the same was proposed on the same screen."""

    name = "ThinkOfNextStep"
    fail_fast = True

    def __init__(
        self,
        thinker: Thinker[D],
        memory: Memory,
        repeats: RepeatWatch,
        untrusted: UntrustedText,
        *,
        statuses: Sequence[str],
        role: str,
        limits: AgentLimits,
    ) -> None:
        self._thinker = thinker
        self._memory = memory
        self._repeats = repeats
        self._untrusted = untrusted
        self._statuses = tuple(statuses)
        self._role = role
        self._limits = limits
        self._budget = PromptBudget(history=limits.history_tokens)

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Ask the model for the next step."""
        assignment = context.require("assignment", Assignment)
        tools: tuple[ToolProfile, ...] = context.require("tools", tuple)
        screen, digest = context.require("screen", str), context.require("screen_digest", str)
        messages = step_messages(
            system=system_text(tools, self._statuses, self._role),
            goal=goal_text(assignment, self._untrusted, self._budget),
            history=self._memory.window(self._budget.history),
            screen=self._untrusted.show_tool(clip(screen, self._budget.screen), "folder listing"),
            notes=context.require("notes", tuple),
        )

        def problems(reply: D) -> list[str]:
            found = device_reply_problems(reply)
            for action in reply.actions:
                found += call_problems(action.tool, action.arguments, tools)
            return found

        reply, usage = await self._thinker.ask(
            messages, context.require("step", int), problems, screen=digest, suspicions=self._untrusted.suspicions
        )
        repeats = self._repeats.propose(reply.actions, digest) if reply.actions else 0
        return {
            "reply": reply,
            "usage": usage,
            "llm_cost": usage.cost,
            "repeats": repeats,
            "repeated": repeats >= self._limits.most_repeats,
        }
