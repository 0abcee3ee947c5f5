"""The manifest of the wire's rules is whole, in both directions."""

import ast
import re
from pathlib import Path

from tests.aip import requirements, requirements_of_peers

ROOT = Path(__file__).parents[2]
# Every test in these files shows a rule of the specification, so every one must be named.
COVERED = [
    "tests/fleet/test_attacks.py",
    "tests/fleet/test_conformance_server.py",
    "tests/fleet/test_conformance_constellation.py",
    "tests/fleet/test_resume.py",
    "tests/fleet/test_extension.py",
    "tests/fleet/test_credentials.py",
    "tests/fleet/test_sockets.py",
    "tests/fleet/test_network.py",
    "tests/device/test_process.py",
    "tests/aip/test_messages.py",
    "tests/aip/test_protocol.py",
]
PARTS = ("2.1 2.2 2.3 2.4 2.5 2.6 2.7", "5.1 5.2 5.3 5.4 5.5", "6.1 6.2 6.3 6.4 6.5 6.6")
SECTIONS = ["1", "2", "3", "4", "7", "8", "9", "10", "12", "14", *(name for part in PARTS for name in part.split())]
# The rows of the table of attacks, by the first commit that each names; and the extra cases below it.
ROWS = (
    "2368a5fc 723d557e ffbc5f75 fce110d1 bdd46aab 2558da4e cc653bde e1b376c7 fd2597cc",
    "e380d5ae 2362e2bd 60484611 fce6e6bd 1fb3669b 3851c5d4 9d8349c2 3fdce0d5 extra",
)
ATTACKS = [name for row in ROWS for name in row.split()]
CHECKLISTS = ["server", "device", "constellation"]


REQUIREMENTS = (*requirements.REQUIREMENTS, *requirements_of_peers.REQUIREMENTS)


def _tests_in(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{path}::{function.name}" for function in functions if function.name.startswith("test_")}


def test_ids_are_unique_and_every_rule_has_tests_or_a_reason_why_not():
    ids = [requirement.id for requirement in REQUIREMENTS]
    assert len(ids) == len(set(ids))
    for requirement in REQUIREMENTS:
        assert bool(requirement.tests) != bool(requirement.gap), requirement.id


def test_every_named_test_exists():
    named = {test for requirement in REQUIREMENTS for test in requirement.tests}
    existing = set().union(*(_tests_in(path) for path in {test.split("::")[0] for test in named}))
    assert named - existing == set()


def test_every_test_of_the_wire_shows_a_rule():
    named = {test for requirement in REQUIREMENTS for test in requirement.tests}
    assert set().union(*(_tests_in(path) for path in COVERED)) - named == set()


def test_no_section_no_defect_no_attack_and_no_checklist_is_forgotten():
    sources = {requirement.source for requirement in REQUIREMENTS}
    wanted = [*SECTIONS, *(f"D{number}" for number in range(1, 36))]
    wanted += [*(f"12: {attack}" for attack in ATTACKS), *(f"14: {checklist}" for checklist in CHECKLISTS)]
    forgotten = [name for name in wanted if not any(re.match(rf"{re.escape(name)}(?![\w.])", item) for item in sources)]
    assert forgotten == []


def test_no_rule_has_a_source_that_is_not_in_the_specification():
    known = [*SECTIONS, *(f"D{number}" for number in range(1, 36))]
    assert [item.id for item in REQUIREMENTS if item.source.partition(":")[0] not in known] == []
