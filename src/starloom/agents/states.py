"""Agents and their states: who acts next is answered by the state an agent is in, so no dispatcher knows the agents.

A round is four lines over these hooks (`session.round`). A state class holds no data; `get_state` makes a fresh
instance, so nothing is shared between sessions. A decorator registers a class with its agent's table:

    @LINUX_STATES.register
    class Waiting(AgentState[LinuxAgent]): …

and from then on the model may write its name: reply schemas take their words from the table. `BasicAgent` is what a
round needs of any agent; those with a brain are in `shell_agent`, `app_agent`, `host_agent`, `constellation_agent`.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from starloom.agents.memory import Memory
from starloom.agents.status import AgentStatus, Evidence, StopReason
from starloom.errors import UsageError
from starloom.processing.context import Context
from starloom.processing.dispatch import Json

A = TypeVar("A", bound="BasicAgent")
C = TypeVar("C", bound="type[AgentState[Any]]")


class UnknownStatus(UsageError):
    """No state of this agent has that name; the message lists those it has."""


class AgentState(Generic[A]):
    """One state. The defaults are those of a state that only waits for the next status word."""

    model_may_write = True
    """Whether a model may choose this state; ERROR and the like are set by us alone."""

    @classmethod
    def name(cls) -> str:
        """Return the status word of this state."""
        raise NotImplementedError

    async def handle(self, agent: A, context: Context) -> None:
        """Do what this state is for."""

    def next_state(self, agent: A) -> "AgentState[Any]":
        """Return the state that follows: that of the status the agent stands at."""
        return agent.states.get_state(agent.status)

    def next_agent(self, agent: A) -> "BasicAgent":
        """Return who acts next: the same agent."""
        return agent

    def is_round_end(self) -> bool:
        """Whether the round is over when this state is reached."""
        return False

    def is_subtask_end(self) -> bool:
        """Whether a subtask has ended when this state is reached."""
        return False


class AgentStateManager:
    """One agent's table of states, by name."""

    def __init__(self, agent: str, states: Sequence[type[AgentState[Any]]] = ()) -> None:
        self._agent = agent
        self._state_mapping: dict[str, type[AgentState[Any]]] = {}
        for state_class in states:
            self.register(state_class)

    def register(self, state_class: C) -> C:
        """Add a state class under its name; usable as a decorator.

        Raises:
            UsageError: another class has that name already.
        """
        name = state_class.name()
        if self._state_mapping.get(name, state_class) is not state_class:
            raise UsageError(f"{self._agent} has a state {name!r} already.")
        self._state_mapping[name] = state_class
        return state_class

    def get_state(self, status: str) -> AgentState[Any]:
        """Return a fresh state for a status word.

        Raises:
            UnknownStatus: there is none of that name.
        """
        state_class = self._state_mapping.get(status)
        if state_class is None:
            raise UnknownStatus(f"{self._agent} has no state {status!r}; it has {', '.join(self._state_mapping)}.")
        return state_class()

    @property
    def names(self) -> tuple[str, ...]:
        """All status words, in the order of registration."""
        return tuple(self._state_mapping)

    @property
    def words_for_models(self) -> tuple[str, ...]:
        """The status words that a model may write."""
        return tuple(name for name, state in self._state_mapping.items() if state.model_may_write)

    def copy(self) -> "AgentStateManager":
        """Return a table with the same states, to which more can be added without touching this one."""
        return AgentStateManager(self._agent, tuple(self._state_mapping.values()))


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
