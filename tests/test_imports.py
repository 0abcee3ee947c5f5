"""What starts light stays light, measured in modules and never in time; and importing a module does nothing."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import starloom

HEAVY = {"pydantic_ai", "openai", "mcp", "fastapi", "starlette", "uvicorn", "openpyxl", "pypdf", "xllamacpp", "keyring"}


def modules_after(code: str) -> set[str]:
    report = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_loads_at_most_300_modules_and_no_heavy_one():
    loaded = modules_after("from starloom.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit: pass")
    assert len(loaded) <= 300
    assert not loaded & (HEAVY | {"rich", "pydantic", "yaml", "asyncio"})


def test_a_device_loads_no_model_mcp_or_web_framework():
    loaded = modules_after(
        "import asyncio\n"
        "from starloom.aip.transport import memory_pair\n"
        "from starloom.aip.websocket import connect\n"
        "from starloom.cli.join import join\n"
        "from starloom.clock import SystemClock\n"
        "from starloom.device.identity import identity_of_this_machine\n"
        "from starloom.device.process import run_device\n"
        "from starloom.tools.builtin import builtin_toolsets\n"
        "from starloom.tools.router import ToolRouter\n"
        "from starloom.tools.workspace import Workspace\n"
        "ToolRouter(builtin_toolsets(Workspace('.')))\n"
    )
    assert not loaded & HEAVY


def test_importing_any_module_does_nothing(tmp_path: Path):
    names = [
        info.name for info in pkgutil.walk_packages(starloom.__path__, "starloom.") if info.name != "starloom.__main__"
    ]
    code = (
        "import importlib, logging, pathlib, signal, sys, threading\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert threading.active_count() == 1, name + ' starts a thread'\n"
        "    assert not list(pathlib.Path().iterdir()), name + ' writes a file'\n"
        "    assert not logging.getLogger('starloom').handlers, name + ' installs a log handler'\n"
        "    assert signal.getsignal(signal.SIGINT) is before, name + ' takes a signal'\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
