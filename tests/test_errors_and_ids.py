"""Facts about the ground: errors say who must act, ids are new or derived."""

import pytest

from starloom import errors
from starloom.errors import StarloomError
from starloom.ids import CountingIds, RandomIds, RunId, TaskId, attempt_id

BRANCHES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StarloomError)]


def test_every_branch_has_its_own_exit_code():
    codes = [kind.exit_code for kind in BRANCHES]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes


@pytest.mark.parametrize("kind", BRANCHES)
def test_ids_are_kept_and_absent_ones_left_out(kind: type[StarloomError]):
    error = kind("It failed.", task_id="t1", device_id=None)
    assert str(error) == "It failed."
    assert error.ids == {"task_id": "t1"}


def test_random_ids_do_not_meet():
    ids = RandomIds()
    assert len({ids.new("run") for _ in range(1000)}) == 1000


def test_counting_ids_are_in_order():
    ids = CountingIds()
    assert [ids.new("run"), ids.new("task")] == ["run_1", "task_2"]


def test_an_attempts_id_is_derived():
    assert attempt_id(RunId("r"), TaskId("t"), 2) == attempt_id(RunId("r"), TaskId("t"), 2) == "r:t:2"
