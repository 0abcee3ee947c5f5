"""What every test may rely on."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Let programs that the tests start be interrupted, even where the tests themselves run in a shell's background.

    A shell starts background jobs with Ctrl-C ignored, and children inherit that; a handler of Python's they do not.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


class SmallDisk:
    """A real file system of a few megabytes, seen by the processes that are started with `command` only."""

    def __init__(self, path: Path, size_kb: int) -> None:
        path.mkdir()
        self.path = path
        script = 'mount -t tmpfs -o size="$1"k tmpfs "$0" && echo ready && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, str(path), str(size_kb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            pytest.skip("needs the right to mount a small file system")

    def command(self, *words: str, cwd: Path | None = None) -> list[str]:
        """Return a command that runs where the disk is."""
        enter = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials"]
        return [*enter, f"--wd={cwd or self.path}", *words]

    def grow(self, size_kb: int) -> None:
        """Make space."""
        subprocess.run(self.command("mount", "-o", f"remount,size={size_kb}k", str(self.path)), check=True)

    def close(self) -> None:
        """Let it go."""
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Return what makes a small disk; skip where this user may not."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("needs the right to mount a small file system")
    made: list[SmallDisk] = []

    def make(size_kb: int) -> SmallDisk:
        made.append(SmallDisk(tmp_path / f"disk{len(made)}", size_kb))
        return made[-1]

    yield make
    for disk in made:
        disk.close()
