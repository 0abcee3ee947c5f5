"""The words of the constellation: statuses, edge types, priorities; for everyone.

Values are upstream's lower-case words, so they are what is stored and sent.
Source: seed 4 §3.1; `CancelReason` and `EdgeOutcome` from constellation.md, Model and Edges.
"""

from enum import IntEnum, StrEnum


class TaskStatus(StrEnum):
    """Where a task stands.

        waiting_dependency ⇄ pending ──▶ running ──▶ completed | failed
                 │              │  ◀─retry─┘ │
                 └──────────────┴────────────┴─────▶ cancelled

    `pending`: every incoming edge is satisfied (or there is none); `waiting_dependency`: one is still undecided.
    """

    PENDING = "pending"
    WAITING_DEPENDENCY = "waiting_dependency"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended and never changes again."""
        return self in _TERMINAL


_TERMINAL = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})


class CancelReason(StrEnum):
    """Why a task was cancelled."""

    USER = "user"
    UNREACHABLE = "unreachable"
    RUN_CANCELLED = "run_cancelled"


class DependencyType(StrEnum):
    """What an edge demands of its source; the table is in constellation.md, Edges."""

    UNCONDITIONAL = "unconditional"
    CONDITIONAL = "conditional"
    SUCCESS_ONLY = "success_only"
    COMPLETION_ONLY = "completion_only"


class EdgeOutcome(StrEnum):
    """What an edge says about its target now."""

    PENDING = "pending"
    SATISFIED = "satisfied"
    UNSATISFIABLE = "unsatisfiable"


class ConstellationState(StrEnum):
    """The whole graph's state, always computed from its tasks and its run."""

    CREATED = "created"
    READY = "ready"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELLED = "cancelled"

    def __str__(self) -> str:
        # Seed 4 prints `State: ConstellationState.READY`; `.value` is the stored word.
        return f"ConstellationState.{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether every task has ended."""
        return self not in {ConstellationState.CREATED, ConstellationState.READY, ConstellationState.EXECUTING}


class TaskPriority(IntEnum):
    """Who goes first among ready tasks; the higher, the earlier."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4


class DeviceType(StrEnum):
    """The kinds of device a task may ask for."""

    WINDOWS = "windows"
    MACOS = "macos"
    LINUX = "linux"
    ANDROID = "android"
    IOS = "ios"
    WEB = "web"
    API = "api"
