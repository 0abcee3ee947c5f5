import json
import shutil
import subprocess
import sys
from pathlib import Path

from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolCall, ToolRouter
from starloom.tools.workspace import Workspace


def test_every_builtin_tool_declares_risk_destinations_and_describes_itself(tmp_path):
    for item in ToolRouter(builtin_toolsets(Workspace(tmp_path))).infos():
        assert item.description.endswith("."), item.name
        assert item.destinations, item.name
        assert item.input_schema["additionalProperties"] is False, item.name


def test_shell_can_be_left_out(tmp_path):
    router = ToolRouter(builtin_toolsets(Workspace(tmp_path), shell=False))
    assert router.find("shell.run") is None
    assert router.find("files.read") is not None


async def test_main_job_through_the_router_is_right_to_the_cent(tmp_path):
    examples = Path(__file__).parents[2] / "examples" / "invoices"
    shutil.copytree(examples, tmp_path / "invoices")
    truth = json.loads((examples / "truth.json").read_text(encoding="utf-8"))["totals_cents"]
    router = ToolRouter(builtin_toolsets(Workspace(tmp_path)))

    async def call(name, **arguments):
        outcome = await router.call(ToolCall(name, arguments))
        assert outcome.error is None
        return json.loads(json.dumps(outcome.result))

    tables = [await call("invoices.read", folder=f"invoices/{branch}") for branch in ("north", "south")]
    written = await call("sheets.write", tables=tables, path="totals.xlsx")
    report = await call("reports.write", tables=tables, path="summary.md")
    expected = {"EUR": f"{truth['all'] // 100}.{truth['all'] % 100:02}"}
    assert written["totals"] == report["totals"] == expected
    archive = await call("files.zip", files=["totals.xlsx", "summary.md"], path="invoices.zip")
    assert archive["files"] == ["totals.xlsx", "summary.md"]
    shown = await call("sheets.read", path="totals.xlsx", sheet="Totals")
    assert shown["rows"][-1] == ["All", "EUR", expected["EUR"]]


def test_importing_the_tools_loads_no_heavy_library():
    code = (
        "import sys, starloom.tools.builtin, starloom.tools.router\n"
        "print([name for name in ('mcp', 'openpyxl', 'pypdf', 'jsonschema', 'fastapi', 'starlette', 'pydantic_ai',"
        " 'openai', 'httpx', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
