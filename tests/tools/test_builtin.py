import subprocess
import sys

from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolRouter
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


def test_importing_the_tools_loads_no_heavy_library():
    code = (
        "import sys, starloom.tools.builtin, starloom.tools.router\n"
        "print([name for name in ('mcp', 'openpyxl', 'pypdf', 'jsonschema', 'fastapi', 'starlette', 'pydantic_ai',"
        " 'openai', 'httpx', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
