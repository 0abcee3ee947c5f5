"""The program as a user runs it: a process of its own, with a home of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


@dataclass
class Program:
    """A running `starloom`, its output lines as they come."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: bool = False

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def until(self, wanted: Callable[[str], bool]) -> str:
        """Return the first line that is wanted, once it is there."""
        with self.changed:
            there = self.changed.wait_for(lambda: self.ended or any(map(wanted, self.lines)), timeout=PATIENCE_S)
            found = next(filter(wanted, self.lines), None)
        assert found is not None, f"not seen ({there=}): " + "\n".join(self.lines) + self.rest_of_errors()
        return found

    def until_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the first journal event of that kind with these fields, once it is there."""

        def wanted(line: str) -> bool:
            row = json.loads(line) if line.startswith("{") else {}
            return row.get("kind") == kind and all(row["event"].get(name) == value for name, value in fields.items())

        return json.loads(self.until(wanted))

    def events(self) -> list[dict[str, Any]]:
        return [row for line in self.lines if line.startswith("{") and "kind" in (row := json.loads(line))]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def freeze(self) -> None:
        """Stop the process where it is, so that what is asked of it stays unanswered."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.kill()

    def finish(self) -> int:
        code = self.process.wait(timeout=PATIENCE_S)
        with self.changed:
            self.changed.wait_for(lambda: self.ended, timeout=PATIENCE_S)
        return code

    def rest_of_errors(self) -> str:
        self.process.kill()
        return self.process.stderr.read() if self.process.stderr else ""


@dataclass
class Home:
    """A user's home: `STARLOOM_HOME` and a folder to work in."""

    folder: Path
    started: list[Program] = field(default_factory=list)
    disk: Any = None  # a `SmallDisk` that the programs see, as their home

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def environ(self, **more: str) -> dict[str, str]:
        base = {name: value for name, value in os.environ.items() if not name.startswith("STARLOOM")}
        own = {
            "STARLOOM_HOME": str(self.disk.path if self.disk else self.folder / "home"),
            "HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }
        return {**base, **own, **more}

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._command(words, cwd),
            cwd=cwd or self.work,
            env=self.environ(**more),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )

    def _command(self, words: tuple[str, ...], cwd: Path | None) -> list[str]:
        command = [sys.executable, "-m", "starloom", *words]
        return self.disk.command(*command, cwd=cwd or self.work) if self.disk else command

    def start(self, *words: str, cwd: Path | None = None, **more: str) -> Program:
        process = subprocess.Popen(
            self._command(words, cwd),
            cwd=cwd or self.work,
            env=self.environ(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = Program(process)
        threading.Thread(target=program.read, daemon=True).start()
        self.started.append(program)
        return program


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    place = Home(tmp_path)
    place.work.mkdir()
    yield place
    for program in place.started:
        program.process.kill()
        program.process.wait()
        for stream in (program.process.stdout, program.process.stderr):
            if stream is not None and program.finish() is not None:
                stream.close()
