from starloom.tools.reports import reports_toolset
from starloom.tools.workspace import Workspace

TABLE = {
    "title": "in/north",
    "columns": ["file", "currency", "total"],
    "rows": [["a|b.pdf", "EUR", "10.00"], ["<img src=x> [x](http://evil)\n# Heading", "EUR", "5.50"]],
    "totals": {"EUR": "15.50"},
    "unreadable": [{"file": "c.pdf", "reason": "a scan"}],
}


async def test_summary_shows_totals_rows_and_what_was_left_out(tmp_path):
    tool = reports_toolset(Workspace(tmp_path)).tools[0]
    made = await tool.function({"tables": [TABLE, {**TABLE, "title": "south", "unreadable": []}], "path": "summary.md"})
    assert made == {"path": "summary.md", "totals": {"EUR": "31.00"}, "unreadable": 1}
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| EUR | 31.00 |" in text
    assert "| a\\|b.pdf | EUR | 10.00 |" in text
    assert "2 entries, together EUR 15.50." in text
    assert "- in/north/c.pdf: a scan" in text
    assert text.count("\n# ") == 0
    assert "\\<img src=x\\> \\[x\\](http\\://evil) \\# Heading" in text
