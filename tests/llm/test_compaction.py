"""Compaction leaves out the oldest first, never silently, and never the instructions or the question."""

from starloom.llm.compaction import compacted
from starloom.llm.port import Image, Message, estimated_tokens

SYSTEM = Message("system", "You act.")
LAST = Message("user", "Now?", (Image(b"now"),))
OLD = [Message("user", f"step {number} " * 30, (Image(b"old"),)) for number in range(4)]


def test_what_fits_is_left_alone() -> None:
    assert compacted([SYSTEM, *OLD, LAST], 100_000) == ([SYSTEM, *OLD, LAST], "")


def test_older_pictures_go_first_and_it_is_said() -> None:
    turns, said = compacted([SYSTEM, *OLD, LAST], 3000)
    assert said == "left out: 4 older pictures"
    assert turns[-1] == LAST
    assert all("left out" in turn.text for turn in turns[1:-1])
    assert estimated_tokens(turns) <= 3000


def test_then_older_turns_go_and_a_turn_says_so() -> None:
    turns, said = compacted([SYSTEM, *OLD, LAST], 1700)
    assert "turns" in said
    assert turns[0] == SYSTEM
    assert "older turns were left out" in turns[1].text
    assert turns[-1] == LAST


def test_fixed_turns_are_never_cut() -> None:
    turns, said = compacted([SYSTEM, LAST], 10)
    assert turns == [SYSTEM, LAST]
    assert said == ""
