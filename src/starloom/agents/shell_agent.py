"""`LinuxAgent`: a device agent without a screen, for any machine with files and a shell; it has no host.

    CONTINUE ──▶ status written            PENDING ──▶ CONTINUE with the answer, or without
    CONFIRM  ──▶ approved: the action, then CONTINUE · refused: FINISH (user_refused)
    FINISH, FAIL, ERROR end the round

The name is the seeds'; nothing in it is bound to Linux. Called by `session.round.run_goal`.
"""

from starloom.agents.assignment import Assignment
from starloom.agents.device_agent import AgentParts, DeviceAgent
from starloom.agents.device_states import WORKING_STATES
from starloom.agents.states import AgentState, AgentStateManager, BasicAgent
from starloom.agents.status import AgentStatus

LINUX_STATES = AgentStateManager("LinuxAgent", WORKING_STATES)


class LinuxAgent(DeviceAgent):
    """Reaches a goal with a device's file and shell tools."""

    def __init__(self, parts: AgentParts, assignment: Assignment, *, name: str = "LinuxAgent") -> None:
        super().__init__(name, LINUX_STATES.copy(), parts, assignment)


class _LastState(AgentState[LinuxAgent]):
    """A state that ends the round: nothing follows it."""

    def next_state(self, agent: LinuxAgent) -> AgentState[LinuxAgent]:
        """Return the same state."""
        return self

    def next_agent(self, agent: LinuxAgent) -> BasicAgent:
        """Return the same agent."""
        return agent

    def is_round_end(self) -> bool:
        """Answer yes."""
        return True

    def is_subtask_end(self) -> bool:
        """Answer yes: a goal without a host is one subtask."""
        return True


@LINUX_STATES.register
class FinishState(_LastState):
    """The goal is reached, or a person said no."""

    @classmethod
    def name(cls) -> str:
        """Return FINISH."""
        return AgentStatus.FINISH


@LINUX_STATES.register
class FailState(_LastState):
    """The goal cannot be reached."""

    @classmethod
    def name(cls) -> str:
        """Return FAIL."""
        return AgentStatus.FAIL


@LINUX_STATES.register
class ErrorState(_LastState):
    """Something broke: the model, the device, or we."""

    model_may_write = False

    @classmethod
    def name(cls) -> str:
        """Return ERROR."""
        return AgentStatus.ERROR
