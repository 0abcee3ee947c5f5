import asyncio
import os
import sys

import psutil
import pytest

from starloom.safety.paths import PathRefused
from starloom.safety.policy import Risk
from starloom.tools.shell import shell_toolset
from starloom.tools.toolset import ToolFailure
from starloom.tools.workspace import Workspace


def tool_at(root):
    return shell_toolset(Workspace(root)).tools[0]


async def run(root, command, **more):
    return await tool_at(root).function({"command": command, **more})


async def test_program_runs_in_the_workspace(tmp_path):
    (tmp_path / "sub").mkdir()
    ran = await run(tmp_path, [sys.executable, "-c", "import os,sys; print(os.getcwd()); sys.exit(3)"], cwd="sub")
    assert (ran["exit_code"], ran["stdout"].strip(), ran["stderr"]) == (3, str(tmp_path / "sub"), "")


@pytest.mark.parametrize("text", ["a;b", "$(id)", "`id`", "a|b", "a > b", "$HOME", "*", "a && b", "a\nb"])
async def test_nothing_is_interpreted(tmp_path, text):
    ran = await run(tmp_path, ["printf", "%s", text])
    assert ran["stdout"] == text
    assert list(tmp_path.iterdir()) == []


async def test_string_is_split_and_not_interpreted(tmp_path):
    assert (await run(tmp_path, "printf '%s.' 'a b' c ; id"))["stdout"] == "a b.c.;.id."


async def test_secrets_of_the_environment_do_not_reach_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in (await run(tmp_path, ["env"]))["stdout"]


async def test_long_output_loses_its_middle(tmp_path):
    code = "print('first' + 'x' * 300000 + 'last')"
    ran = await run(tmp_path, [sys.executable, "-c", code])
    assert ran["truncated"]
    assert ran["stdout"].startswith("first")
    assert ran["stdout"].endswith("last\n")
    assert len(ran["stdout"]) < 70_000


SLEEPER = (
    "import subprocess,sys,time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "open('pid', 'w').write(f'{child.pid}')\n"
    "time.sleep(600)\n"
)


async def wait_gone(pid: int) -> bool:
    def wait() -> bool:
        try:
            process = psutil.Process(pid)
            return process.status() == psutil.STATUS_ZOMBIE or process.wait(10) is None
        except psutil.NoSuchProcess:
            return True
        except psutil.TimeoutExpired:
            return False

    return await asyncio.to_thread(wait)


async def started(root, **more):
    """Start the sleeper and return the call and the process id of the sleeper's child."""
    os.mkfifo(root / "pid")
    call = asyncio.ensure_future(run(root, [sys.executable, "-c", SLEEPER], **more))
    return call, int(await asyncio.to_thread((root / "pid").read_text))


async def test_time_limit_kills_the_program_and_its_children(tmp_path):
    call, child = await started(tmp_path, timeout_s=3)
    with pytest.raises(ToolFailure, match="killed after its limit of 3 s"):
        await call
    assert await wait_gone(child)


async def test_cancelling_kills_the_program_and_its_children(tmp_path):
    call, child = await started(tmp_path)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await wait_gone(child)


async def test_what_a_program_leaves_in_the_background_ends_with_it(tmp_path):
    ran = await run(tmp_path, ["sh", "-c", "sleep 600 & echo $!"])
    assert ran["exit_code"] == 0
    assert await wait_gone(int(ran["stdout"]))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], "command"),
        ("", "command"),
        ("   ", "empty"),
        ("'open", "cannot be split"),
        (["a\x00b"], "NUL"),
        (["/nonexistent/program"], "Cannot start"),
    ],
)
async def test_command_that_cannot_run_is_a_failure(tmp_path, command, words):
    with pytest.raises(ToolFailure, match=words):
        await run(tmp_path, command)


async def test_folder_outside_is_refused(tmp_path):
    with pytest.raises(PathRefused):
        await run(tmp_path, ["pwd"], cwd="..")


def test_risk_is_the_highest(tmp_path):
    assert tool_at(tmp_path).risk is Risk.IRREVERSIBLE
    assert os.name == "posix"
