"""Facts about the rows that programs and views get."""

import pytest

from starloom.session.views import brief

TABLE = {"title": "t", "columns": ["a"], "rows": [[1], [2]], "totals": {"EUR": "3.00"}, "unreadable": []}


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (TABLE, "2 rows, EUR 3.00"),
        ({**TABLE, "totals": {}, "unreadable": [{}]}, "2 rows, 1 unreadable"),
        ({"path": "a.xlsx", "size_bytes": 3}, "a.xlsx"),
        ("two\nlines", "two lines"),
        (None, "null"),
        ({"path": 3}, '{"path": 3}'),
    ],
)
def test_a_result_is_one_line(result, line: str):
    assert brief(result) == line


def test_a_long_result_is_cut_and_says_so():
    assert len(brief("x" * 1000)) == 160
    assert brief("x" * 1000).endswith("…")
