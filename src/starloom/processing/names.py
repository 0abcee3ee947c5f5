"""The thirty names of a session's shared state, each with its type and its default.

Read by `processing.context`, which checks every write against this table. Source: seed 2; where upstream's declared
type contradicts its own default (`ROUND_SUBTASK_AMOUNT`, `CURRENT_ROUND_SUBTASK_AMOUNT`) the seed's table decides.

    identity     ID MODE CURRENT_ROUND_ID
    work         REQUEST SUBTASK PREVIOUS_SUBTASKS HOST_MESSAGE ROUND_RESULT
    cost         SESSION_COST ROUND_COST CURRENT_ROUND_COST
    steps        SESSION_STEP ROUND_STEP CURRENT_ROUND_STEP ROUND_SUBTASK_AMOUNT CURRENT_ROUND_SUBTASK_AMOUNT
    application  APPLICATION_WINDOW APPLICATION_WINDOW_INFO APPLICATION_PROCESS_NAME APPLICATION_ROOT_NAME
                 CONTROL_REANNOTATION
    logs         LOG_PATH LOGGER REQUEST_LOGGER EVALUATION_LOGGER STRUCTURAL_LOGS
    tools        TOOL_INFO DEVICE_INFO CONSTELLATION WEAVING_MODE
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import TypeAlias

Value: TypeAlias = object
"""What the context can hold: JSON values, and objects that only live in this process (loggers, windows)."""


class WeavingMode(StrEnum):
    """Whether the constellation is being made or changed. Source: upstream galaxy/agents/schema.py."""

    CREATION = "creation"
    EDITING = "editing"


class ContextNames(Enum):
    """The names; a member knows its `type` and gives a fresh `default_value` every time."""

    ID = "ID"
    MODE = "MODE"
    LOG_PATH = "LOG_PATH"
    REQUEST = "REQUEST"
    SUBTASK = "SUBTASK"
    PREVIOUS_SUBTASKS = "PREVIOUS_SUBTASKS"
    HOST_MESSAGE = "HOST_MESSAGE"
    REQUEST_LOGGER = "REQUEST_LOGGER"
    LOGGER = "LOGGER"
    EVALUATION_LOGGER = "EVALUATION_LOGGER"
    ROUND_STEP = "ROUND_STEP"
    SESSION_STEP = "SESSION_STEP"
    CURRENT_ROUND_ID = "CURRENT_ROUND_ID"
    APPLICATION_WINDOW = "APPLICATION_WINDOW"
    APPLICATION_PROCESS_NAME = "APPLICATION_PROCESS_NAME"
    ROUND_RESULT = "ROUND_RESULT"
    APPLICATION_ROOT_NAME = "APPLICATION_ROOT_NAME"
    CONTROL_REANNOTATION = "CONTROL_REANNOTATION"
    SESSION_COST = "SESSION_COST"
    ROUND_COST = "ROUND_COST"
    ROUND_SUBTASK_AMOUNT = "ROUND_SUBTASK_AMOUNT"
    CURRENT_ROUND_STEP = "CURRENT_ROUND_STEP"
    CURRENT_ROUND_COST = "CURRENT_ROUND_COST"
    CURRENT_ROUND_SUBTASK_AMOUNT = "CURRENT_ROUND_SUBTASK_AMOUNT"
    STRUCTURAL_LOGS = "STRUCTURAL_LOGS"
    APPLICATION_WINDOW_INFO = "APPLICATION_WINDOW_INFO"
    TOOL_INFO = "TOOL_INFO"
    DEVICE_INFO = "DEVICE_INFO"
    CONSTELLATION = "CONSTELLATION"
    WEAVING_MODE = "WEAVING_MODE"

    @property
    def type(self) -> type:
        """The class that a value must be of; `object` where any value, None included, is allowed."""
        return SHAPES[self].kind

    @property
    def default_value(self) -> Value:
        """A new default value; two calls never share a list or dictionary."""
        return SHAPES[self].make_default()


@dataclass(frozen=True, slots=True)
class Shape:
    """A name's type, its default, and for a dictionary per round the type of its values."""

    kind: type
    make_default: Callable[[], Value]
    per_round: type | None = None


def empty_logs() -> defaultdict[int, defaultdict[int, list[dict[str, Value]]]]:
    """Return structural logs without entries: round, then subtask, then a list of records."""
    return defaultdict(lambda: defaultdict(list))


_TEXT = Shape(str, str)
_COUNT = Shape(int, int)
_MONEY = Shape(float, float)
_LIST = Shape(list, list)
_LIVE = Shape(object, lambda: None)  # a logger, a window, a graph: any object of this process, or None

SHAPES: MappingProxyType[ContextNames, Shape] = MappingProxyType(
    {
        ContextNames.ID: _COUNT,
        ContextNames.MODE: _TEXT,
        ContextNames.LOG_PATH: _TEXT,
        ContextNames.REQUEST: _TEXT,
        ContextNames.SUBTASK: _TEXT,
        ContextNames.PREVIOUS_SUBTASKS: _LIST,
        ContextNames.HOST_MESSAGE: _LIST,
        ContextNames.REQUEST_LOGGER: _LIVE,
        ContextNames.LOGGER: _LIVE,
        ContextNames.EVALUATION_LOGGER: _LIVE,
        ContextNames.ROUND_STEP: Shape(dict, dict, per_round=int),
        ContextNames.SESSION_STEP: _COUNT,
        ContextNames.CURRENT_ROUND_ID: _COUNT,
        ContextNames.APPLICATION_WINDOW: _LIVE,
        ContextNames.APPLICATION_PROCESS_NAME: _TEXT,
        ContextNames.ROUND_RESULT: _TEXT,
        ContextNames.APPLICATION_ROOT_NAME: _TEXT,
        ContextNames.CONTROL_REANNOTATION: _LIST,
        ContextNames.SESSION_COST: _MONEY,
        ContextNames.ROUND_COST: Shape(dict, dict, per_round=float),
        ContextNames.ROUND_SUBTASK_AMOUNT: Shape(dict, dict, per_round=int),
        ContextNames.CURRENT_ROUND_STEP: _COUNT,
        ContextNames.CURRENT_ROUND_COST: _MONEY,
        ContextNames.CURRENT_ROUND_SUBTASK_AMOUNT: _COUNT,
        ContextNames.STRUCTURAL_LOGS: Shape(dict, empty_logs),
        ContextNames.APPLICATION_WINDOW_INFO: _LIVE,
        ContextNames.TOOL_INFO: Shape(dict, dict),
        ContextNames.DEVICE_INFO: _LIST,
        ContextNames.CONSTELLATION: _LIVE,
        ContextNames.WEAVING_MODE: Shape(WeavingMode, lambda: WeavingMode.CREATION),
    }
)

ROUND_TOTALS: MappingProxyType[ContextNames, ContextNames] = MappingProxyType(
    {
        ContextNames.CURRENT_ROUND_STEP: ContextNames.ROUND_STEP,
        ContextNames.CURRENT_ROUND_COST: ContextNames.ROUND_COST,
        ContextNames.CURRENT_ROUND_SUBTASK_AMOUNT: ContextNames.ROUND_SUBTASK_AMOUNT,
    }
)
"""Each name of the current round's value, and the dictionary per round that holds it."""
