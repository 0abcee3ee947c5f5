"""Going in circles is noticed; doing the same after a change is not going in circles."""

from starloom.agents.repeats import RepeatWatch
from starloom.agents.replies import ActionCommandInfo

READ = [ActionCommandInfo(tool="files.read", arguments={"path": "a"})]
WRITE = [ActionCommandInfo(tool="files.write", arguments={"path": "a"})]


def test_the_same_on_the_same_screen_counts_up():
    watch = RepeatWatch()
    assert [watch.propose(READ, "s") for _ in range(3)] == [1, 2, 3]


def test_another_screen_or_another_action_counts_apart():
    watch = RepeatWatch()
    watch.propose(READ, "s")
    assert watch.propose(READ, "other") == 1
    assert watch.propose(WRITE, "s") == 1


def test_alternating_actions_are_circles_too():
    watch = RepeatWatch()
    other = [ActionCommandInfo(tool="files.read", arguments={"path": "b"})]
    for _ in range(2):
        watch.propose(READ, "s")
        watch.propose(other, "s")
    assert watch.propose(READ, "s") == 3


def test_a_change_gives_other_actions_a_new_chance_but_not_itself():
    watch = RepeatWatch()
    watch.propose(READ, "s")
    watch.propose(WRITE, "s")
    watch.changed(WRITE, "s")
    assert watch.propose(READ, "s") == 1
    assert watch.propose(WRITE, "s") == 2
