"""The manifest of the wire's rules is whole, in both directions."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

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
    "tests/device/test_process.py",
    "tests/aip/test_messages.py",
    "tests/aip/test_protocol.py",
]
SECTIONS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "12", "14"]


def _manifest():
    spec = importlib.util.spec_from_file_location("aip_requirements", Path(__file__).with_name("requirements.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.REQUIREMENTS


REQUIREMENTS = _manifest()


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


def test_no_section_and_no_defect_is_forgotten():
    sources = {requirement.source for requirement in REQUIREMENTS}
    assert {f"D{number}" for number in range(1, 36)} - sources == set()
    assert {
        section for section in SECTIONS if not any(re.match(rf"{section}\b", source) for source in sources)
    } == set()
