"""The thirty names of seed 2, with their types and defaults."""

from collections import defaultdict

import pytest

from starloom.processing.names import ROUND_TOTALS, SHAPES, ContextNames, WeavingMode

TEXTS = [
    "MODE",
    "LOG_PATH",
    "REQUEST",
    "SUBTASK",
    "ROUND_RESULT",
    "APPLICATION_PROCESS_NAME",
    "APPLICATION_ROOT_NAME",
]
COUNTS = ["ID", "SESSION_STEP", "CURRENT_ROUND_ID", "CURRENT_ROUND_STEP", "CURRENT_ROUND_SUBTASK_AMOUNT"]
COSTS = ["SESSION_COST", "CURRENT_ROUND_COST"]
LISTS = ["PREVIOUS_SUBTASKS", "HOST_MESSAGE", "CONTROL_REANNOTATION", "DEVICE_INFO"]
DICTS = ["ROUND_STEP", "ROUND_COST", "ROUND_SUBTASK_AMOUNT", "TOOL_INFO", "STRUCTURAL_LOGS"]
LIVE = [
    "LOGGER",
    "REQUEST_LOGGER",
    "EVALUATION_LOGGER",
    "APPLICATION_WINDOW",
    "APPLICATION_WINDOW_INFO",
    "CONSTELLATION",
]


def test_there_are_thirty_names_and_each_has_a_shape():
    assert len(ContextNames) == 30
    assert set(SHAPES) == set(ContextNames)
    listed = [*TEXTS, *COUNTS, *COSTS, *LISTS, *DICTS, *LIVE, "WEAVING_MODE"]
    assert sorted(listed) == sorted(name.name for name in ContextNames)


@pytest.mark.parametrize(
    ("names", "kind", "default"),
    [
        (TEXTS, str, ""),
        (COUNTS, int, 0),
        (COSTS, float, 0.0),
        (LISTS, list, []),
        (DICTS, dict, {}),
        (LIVE, object, None),
    ],
)
def test_types_and_defaults_are_those_of_the_seed(names, kind, default):
    for name in names:
        assert ContextNames[name].type is kind
        assert ContextNames[name].default_value == default


def test_weaving_mode_starts_with_creation():
    assert ContextNames.WEAVING_MODE.default_value is WeavingMode.CREATION


def test_a_default_is_new_every_time():
    assert ContextNames.TOOL_INFO.default_value is not ContextNames.TOOL_INFO.default_value


def test_structural_logs_open_a_round_and_a_subtask_by_themselves():
    logs = ContextNames.STRUCTURAL_LOGS.default_value
    assert isinstance(logs, defaultdict)
    logs[0][1].append({"a": 1})
    assert logs[0][1] == [{"a": 1}]


def test_the_current_rounds_values_have_dictionaries_of_the_same_kind():
    for current, per_round in ROUND_TOTALS.items():
        assert SHAPES[per_round].per_round is current.type
