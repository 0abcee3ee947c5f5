"""Notes of open calls: what cannot be read any more holds up no start, and nothing piles up."""

from pathlib import Path

from starloom.ids import RunId
from starloom.llm.port import Usage
from starloom.session.open_calls import OpenCalls

UNKNOWN = '{"run": "r", "role": "", "model": "", "task": "", "used": {"x": 1}}'
SPOILT = ["", "\0\0\0", '{"run": "r', "[]", "7", "{}", UNKNOWN, "\udcff"]


def test_a_note_that_cannot_be_read_is_taken_away_and_the_others_are_found(tmp_path: Path) -> None:
    with OpenCalls(tmp_path).noted(RunId("r1"), "shell", "m", "t1") as note:
        note.write(Usage(3, 4))
        kept = next(tmp_path.glob("*.json")).read_text(encoding="utf-8")
    for number, text in enumerate(SPOILT):
        (tmp_path / f"1-spoilt-{number}.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "1-half.part").write_text("{", encoding="utf-8")
    (tmp_path / "2-good.json").write_text(kept, encoding="utf-8")
    left = OpenCalls(tmp_path).left_over()
    assert [(name, call.task_id) for name, call in left] == [("2-good", "t1")]
    assert [path.name for path in tmp_path.iterdir()] == ["2-good.json"]
