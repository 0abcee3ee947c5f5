"""The `shell` toolset: run one program in the workspace, without a shell, within limits.

Its risk is irreversible: the policy asks a person for every command. There is no interpretation of `;`, `|`, `$` or
wildcards; whoever wants those names a shell as the program and the person sees it.
"""

import asyncio
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from starloom.safety.policy import Risk
from starloom.tools.comparing import MOST_ENTRIES, Snapshot, differences, snapshot
from starloom.tools.effects import Effects
from starloom.tools.files import FolderPath
from starloom.tools.toolset import ToolFailure, Toolset, tool
from starloom.tools.workspace import Workspace

_LONGEST_OUTPUT_BYTES = 64 * 1024
_LONGEST_RUN_S = 3600.0
_CHUNK_BYTES = 16 * 1024
_SHOWN_COMMAND = 500  # characters on record
_NOTED_DIFFERENCES = 1_000
_PASSED_ON = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM"}
)

Command: TypeAlias = Annotated[
    list[str] | str, Field(min_length=1, description="Program and arguments; a string is split at spaces, quotes kept.")
]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=_LONGEST_RUN_S)]


class Ran(TypedDict):
    """What a program gave back; `truncated` when the middle of its output was left out."""

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    duration_s: float


def shell_toolset(workspace: Workspace) -> Toolset:
    """Return the `shell` toolset over a workspace."""

    async def run(command: Command, cwd: FolderPath = ".", timeout_s: Seconds = 60.0) -> Ran:
        """Run a program without a shell and return its output."""
        return await _run(_words(command), workspace, cwd, timeout_s)

    return Toolset("shell", (tool(run, name="shell.run", risk=Risk.IRREVERSIBLE, destinations=("command", "cwd")),))


def _words(command: list[str] | str) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise ToolFailure(f"The command {command!r} cannot be split into words: {error}.") from error
    if not words or not words[0]:
        raise ToolFailure("The command is empty.")
    if any("\x00" in word for word in words):
        raise ToolFailure("The command contains a NUL character.")
    return words


async def _run(words: list[str], workspace: Workspace, cwd: str, timeout_s: float) -> Ran:
    folder = workspace.folder(cwd)
    started = time.monotonic()
    async with _noted(workspace.effects, folder, words), _pipes() as ((out_end, out), (err_end, err)):
        process = await _start(words, folder, out_end, err_end)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                (stdout, out_cut), (stderr, err_cut), exit_code = await asyncio.gather(
                    _limited(out), _limited(err), _ended(process)
                )
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ToolFailure(f"{words[0]!r} was killed after its limit of {timeout_s:g} s.") from error
        finally:
            if process.returncode is None:
                _kill_group(process)
            await process.wait()
    duration_s = round(time.monotonic() - started, 3)
    return Ran(exit_code=exit_code, stdout=stdout, stderr=stderr, truncated=out_cut or err_cut, duration_s=duration_s)


@asynccontextmanager
async def _noted(effects: Effects, folder: Path, words: list[str]) -> AsyncIterator[None]:
    """Put the start of a program on record, and what is different after its end, however it ended."""
    if not effects.is_noting:
        yield
        return
    await asyncio.to_thread(effects.will_run, folder, shlex.join(words)[:_SHOWN_COMMAND])
    before = await asyncio.to_thread(snapshot, effects.root)
    try:
        yield
    finally:
        await asyncio.to_thread(_note_differences, effects, before)


def _note_differences(effects: Effects, before: Snapshot) -> None:
    after = snapshot(effects.root)
    if not (before.is_whole and after.is_whole):
        effects.has_run((), f"the folder holds more than {MOST_ENTRIES:,} files, so it was not compared")
        return
    found = list(differences(before, after))
    more = len(found) - _NOTED_DIFFERENCES
    effects.has_run(found[:_NOTED_DIFFERENCES], f"{more:,} more files differ and are not on record" if more > 0 else "")


@asynccontextmanager
async def _pipes() -> AsyncIterator[tuple[tuple[int, asyncio.StreamReader], tuple[int, asyncio.StreamReader]]]:
    """Yield two pipes, each as the descriptor to write to, which `_start` closes, and a reader.

    They are ours and not the process's, because asyncio's own `wait` waits for the process's pipes too: a program's
    background child that holds them open would keep it from ever being known to have ended.
    """
    loop = asyncio.get_running_loop()
    ends: list[tuple[int, asyncio.StreamReader]] = []
    transports: list[asyncio.ReadTransport] = []
    try:
        for _ in range(2):
            read_end, write_end = os.pipe()
            reader = asyncio.StreamReader(loop=loop)
            file = os.fdopen(read_end, "rb", buffering=0)
            transport, _protocol = await loop.connect_read_pipe(_protocol_of(reader), file)
            transports.append(transport)
            ends.append((write_end, reader))
        yield ends[0], ends[1]
    finally:
        for transport in transports:
            transport.close()


def _protocol_of(reader: asyncio.StreamReader) -> Callable[[], asyncio.StreamReaderProtocol]:
    return lambda: asyncio.StreamReaderProtocol(reader)


async def _start(words: list[str], folder: Path, out_end: int, err_end: int) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name in _PASSED_ON},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out_end,
            stderr=err_end,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolFailure(f"Cannot start {words[0]!r}: {error.strerror}.") from error
    finally:
        os.close(out_end)
        os.close(err_end)


async def _limited(stream: asyncio.StreamReader) -> tuple[str, bool]:
    """Read a stream to its end, keeping its first and last part; answer whether something was left out."""
    half = _LONGEST_OUTPUT_BYTES // 2
    first, last, dropped = bytearray(), bytearray(), 0
    while chunk := await stream.read(_CHUNK_BYTES):
        room = half - len(first)
        first += chunk[:room]
        last += chunk[room:]
        if len(last) > half:
            dropped += len(last) - half
            del last[: len(last) - half]
    mark = f"\n… {dropped} bytes left out …\n".encode() if dropped else b""
    return bytes(first + mark + last).decode(errors="replace"), dropped > 0


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the program, then kill what it left in the background: it would keep the output open."""
    exit_code = await process.wait()
    _kill_group(process)
    return exit_code


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
