"""`BasicAgent`: what a round needs of any agent — a name, a status, a state, and where its work has led.

The agents with a brain are in `shell_agent`, `host_agent`, `app_agent` and `constellation_agent`.
"""

from typing import Any

from starloom.agents.memory import Memory
from starloom.agents.states import AgentState, AgentStateManager
from starloom.agents.status import AgentStatus, Evidence, StopReason
from starloom.processing.context import Context
from starloom.processing.dispatch import Json


class BasicAgent:
    """An agent in a state. `stop_reason` is None until its work has ended."""

    def __init__(self, name: str, states: AgentStateManager, start: str = AgentStatus.CONTINUE) -> None:
        self.name = name
        self.states = states
        self.memory = Memory()
        self.status: str = start
        self.state: AgentState[Any] = states.get_state(start)
        self.stop_reason: StopReason | None = None
        self.result: Json = None
        self.error: str | None = None
        self.evidence = Evidence.CLAIMED

    async def handle(self, context: Context) -> None:
        """Do what the present state is for."""
        await self.state.handle(self, context)

    def set_state(self, state: AgentState[Any]) -> None:
        """Enter a state; the status follows it."""
        self.state = state
        self.status = state.name()

    def end(self, status: str, reason: StopReason, *, error: str | None = None, result: Json = None) -> None:
        """Stand at a final status and say why; the first reason given stays."""
        self.status = status
        if self.stop_reason is None:
            self.stop_reason = reason
            self.error = error
            self.result = result
