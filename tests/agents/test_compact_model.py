"""The main job's sentence, planned by the real weights with the real tools. The score: `make model-eval`."""

import importlib.util
import os
from pathlib import Path

import pytest

from starloom.agents.compact_planner import CompactPlanner
from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.llm.opening import installed_weights, open_embedded
from starloom.llm.settings import parse_model
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.workspace import Workspace

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        "CI" in os.environ or installed_weights() is None or importlib.util.find_spec("xllamacpp") is None,
        reason="the embedded model is not installed, or this is CI, where it would cost a minute",
    ),
]

DEMO = (
    "Read all invoices in examples/invoices/north on the hub and examples/invoices/south on the branch, "
    "write the totals to totals.xlsx, write a summary to summary.md and make a zip archive invoices.zip of both files"
)


async def test_main_job_is_planned_exactly(tmp_path: Path) -> None:
    toolsets = builtin_toolsets(Workspace(tmp_path))
    tools = tuple(
        ToolProfile(tool.name, tool.description, tool.input_schema, tool.risk, tool.destinations)
        for toolset in toolsets
        for tool in toolset.tools
    )
    devices = [DeviceProfile("hub", "linux", tools), DeviceProfile("branch", "linux", tools)]
    model = open_embedded(parse_model("embedded"))
    try:
        draft = await CompactPlanner(model).plan(DEMO, devices)
    finally:
        await model.close()
    one, two = "{{ tasks.s1.result }}", "{{ tasks.s2.result }}"
    assert draft.warnings == ()
    assert [(step.device_id, step.tool, step.arguments, step.depends_on) for step in draft.steps] == [
        ("hub", "invoices.read", {"folder": "examples/invoices/north"}, ()),
        ("branch", "invoices.read", {"folder": "examples/invoices/south"}, ()),
        ("hub", "sheets.write", {"tables": [one, two], "path": "totals.xlsx"}, ("s1", "s2")),
        ("hub", "reports.write", {"tables": [one, two], "path": "summary.md"}, ("s1", "s2")),
        ("hub", "files.zip", {"files": ["totals.xlsx", "summary.md"], "path": "invoices.zip"}, ("s3", "s4")),
    ]
