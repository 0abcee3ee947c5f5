"""A world to break: a hub and devices as processes of their own, a link that can be cut, and a person who answers.

Everything is real but the person: `starloom up`, `starloom join`, WebSockets, SQLite, a shell that appends to a file.
"""

import contextlib
import http.client
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

PATIENCE_S = 90
KEY = "chaos"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """Forwards TCP from one port to another; `cut` resets every connection that goes through it."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()  # guards the pairs
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            try:
                theirs = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                ours.close()
                continue
            theirs.settimeout(None)
            with self._lock:
                self._pairs.add((ours, theirs))
            threading.Thread(target=self._pump, args=(ours, theirs), daemon=True).start()

    def _pump(self, ours: socket.socket, theirs: socket.socket) -> None:
        with selectors.DefaultSelector() as ready, contextlib.suppress(OSError, ValueError):
            ready.register(ours, selectors.EVENT_READ, theirs)
            ready.register(theirs, selectors.EVENT_READ, ours)
            while True:
                for key, _ in ready.select():
                    chunk = key.fileobj.recv(65536)
                    if not chunk:
                        return self._drop(ours, theirs)
                    key.data.sendall(chunk)
        return self._drop(ours, theirs)

    def _drop(self, ours: socket.socket, theirs: socket.socket) -> None:
        with self._lock:
            self._pairs.discard((ours, theirs))
        for end in (ours, theirs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> int:
        with self._lock:
            pairs = list(self._pairs)
        for ours, theirs in pairs:
            for end in (ours, theirs):
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@dataclass
class World:
    """One user's home, a hub, two devices behind a proxy."""

    folder: Path
    seed: int = 20261130
    port: int = field(default_factory=free_port)
    counts: "Counter[str]" = field(default_factory=Counter)
    hub: "subprocess.Popen[bytes] | None" = None
    devices: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.proxy = Proxy(self.port)
        for name in ("hub", "north", "south"):
            (self.folder / name).mkdir()
        config = self.folder / "home" / "config"
        config.mkdir(parents=True)
        (config / "settings.yaml").write_text("runs: {device_losses: 1000, device_lost_s: 5}\n")

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        base = {name: value for name, value in os.environ.items() if not name.startswith("STARLOOM")}
        log = (self.folder / f"{words[0]}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "starloom", *words],
                env={**base, "STARLOOM_HOME": str(self.folder / "home"), "HOME": str(self.folder), **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start_hub(self) -> None:
        self.hub = self._start(
            "up", "--port", str(self.port), "--key", KEY, "--workspace", str(self.folder / "hub"), "--json"
        )

    def start_device(self, name: str) -> None:
        url = f"ws://127.0.0.1:{self.proxy.port}/ws?token={KEY}"
        self.devices[name] = self._start("join", url, "--name", name, "--workspace", str(self.folder / name), "--json")

    def kill_hub(self) -> None:
        assert self.hub is not None
        self.hub.send_signal(signal.SIGKILL)
        self.hub.wait()

    def kill_device(self, name: str) -> None:
        self.devices[name].send_signal(signal.SIGKILL)
        self.devices[name].wait()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and answer; status 0 when the hub is not there or went away meanwhile."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"X-API-Key": KEY, "Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        if path.partition("?")[0].endswith("/events") and response.status == 200:
            return 200, [json.loads(line) for line in content.splitlines()]
        return response.status, json.loads(content)

    def until(self, what: str, check: Any) -> Any:
        """Return what `check` gives as soon as it is true; what the processes said last when it never is."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = check()
            if found:
                return found
            time.sleep(0.05)
        logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log"))
        raise AssertionError(f"{what} did not come to pass.\n{logs}")

    def is_up(self) -> bool:
        status, answer = self.call("GET", "/api/health")
        return status == 200 and "hub" in answer["online_clients"]

    def online(self, *names: str) -> bool:
        status, answer = self.call("GET", "/api/health")
        return status == 200 and set(names) <= set(answer["online_clients"])

    def events(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        status, rows = self.call("GET", f"/api/runs/{run_id}/events?follow=false&after={after}")
        return rows if status == 200 else []

    def ledger(self, device: str) -> "Counter[str]":
        path = self.folder / device / "ledger.txt"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def took_effect(self, device: str, task_id: str) -> bool:
        """Say, as a person who looks would, whether a task has appended: once nothing that could still do so runs."""

        def is_over() -> bool:
            mark = f"echo {task_id} "
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if any(mark in word for word in process.cmdline()):
                        return False
            return True

        self.until(f"the end of what {task_id} left behind", is_over)
        return self.ledger(device)[task_id] > 0

    def close(self) -> None:
        for process in [self.hub, *self.devices.values()]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.proxy.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all tests of a file: starting one costs seconds."""
    folder = tmp_path_factory.mktemp("world")
    made = World(folder, seed=int(os.environ.get("STARLOOM_CHAOS_SEED", "20261130")))
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)
