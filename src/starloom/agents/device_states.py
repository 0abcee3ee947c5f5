"""The states in which a device agent works, the same for every kind; each kind adds its own ends.

Registered by `shell_agent` (ends the round itself) and `app_agent` (goes back to its host).
"""

from starloom.agents.device_agent import DeviceAgent
from starloom.agents.states import AgentState
from starloom.agents.status import AgentStatus
from starloom.processing.context import Context


class ContinueState(AgentState[DeviceAgent]):
    """Make the next step."""

    @classmethod
    def name(cls) -> str:
        """Return CONTINUE."""
        return AgentStatus.CONTINUE

    async def handle(self, agent: DeviceAgent, context: Context) -> None:
        """Run the pipeline once."""
        await agent.process(context)


class PendingState(AgentState[DeviceAgent]):
    """Wait for the user's answer."""

    @classmethod
    def name(cls) -> str:
        """Return PENDING."""
        return AgentStatus.PENDING

    async def handle(self, agent: DeviceAgent, context: Context) -> None:
        """Ask, and note the answer for the next step."""
        await agent.ask_user(context)


class ConfirmState(AgentState[DeviceAgent]):
    """The action has not happened; a person's yes makes it happen."""

    @classmethod
    def name(cls) -> str:
        """Return CONFIRM."""
        return AgentStatus.CONFIRM

    async def handle(self, agent: DeviceAgent, context: Context) -> None:
        """Ask, and act if admitted."""
        await agent.confirm(context)


WORKING_STATES: tuple[type[AgentState[DeviceAgent]], ...] = (ContinueState, PendingState, ConfirmState)
