"""The rules of the house that imports cannot enforce: sizes, docstrings, and documents that match the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "starloom"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_fits_a_sitting_and_a_function_a_screen(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_says_what_it_is_for_and_holds_nothing_in_its_init(room: Path):
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree)
    assert docstring is not None
    assert re.search(r"(?i)\b(call|calls|called|import|imports|imported|starts|use|used)\b", docstring), (
        "say who may call it"
    )
    assert len(tree.body) == 1


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != "__init__.py"], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_a_module_says_what_it_is_for(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "document", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda path: path.name
)
def test_links_of_a_document_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)#][^)]*)\)", document.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            path, _, _ = target.partition("#")
            assert (document.parent / path).exists(), f"{document.name} links to {target}"


def test_the_tour_names_files_and_words_that_exist():
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    stops = re.findall(r"^## \d+\. `([^`]+)`", tour, flags=re.MULTILINE)
    assert len(stops) == 8
    for number, stop in enumerate(stops):
        source = (SOURCE / stop).read_text(encoding="utf-8")
        part = tour.split(f"## {number + 1}. ")[1].split("\n## ")[0]
        for name in re.findall(r"`([A-Za-z_]+)\(\)`|`([A-Z][A-Za-z]+)`", part):
            word = name[0] or name[1]
            assert re.search(rf"\b{word}\b", source), f"the tour says {word!r} is in {stop}"


def test_the_core_has_at_most_fourteen_dependencies():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 14
    named = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text(encoding="utf-8")
    for dependency in project["dependencies"]:
        assert re.split(r"[\[<>=]", dependency)[0] in named
