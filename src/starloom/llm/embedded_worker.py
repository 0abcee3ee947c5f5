"""The process that holds the embedded model's weights: `python -m starloom.llm.embedded_worker`, started by `embedded`.

A process of its own because loading holds Python's lock for seconds, because a crash of the native library must not
take the hub along, and because ending it gives the memory back at once. It ends when its input ends.

    in   {"load": {"path": …, "context_tokens": …, "threads": …, "batch_tokens": …, "prefixes": folder or null}}
         {"id": 1, "complete": {chat request}, "prefix": key or null}          {"stop": 1}
    out  {"loaded": true}   {"id": 1, "chunk": {…}} …   {"id": 1, "done": true}   {"id": 1, "error": "…"}

The state of the stable first turns is kept on disk by `prefix`, so that a later process need not compute it again.
"""

import contextlib
import json
import os
import queue
import secrets
import signal
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any, TextIO

KEPT_PREFIXES = 4
NICENESS = 5  # a plan may wait a little; a heartbeat may not


class Worker:
    """One model, one request at a time."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._server: Any = None
        self._prefixes: Path | None = None
        self._key = secrets.token_hex(16)  # the library also opens a loopback port; nobody else may use it
        self._held: str | None = None
        self._stopped: set[int] = set()  # written by the reading thread, read by the native library's callback

    def stop(self, request_id: int) -> None:
        """End a request soon; called from the reading thread."""
        self._stopped.add(request_id)

    def handle(self, message: dict[str, Any]) -> None:
        """Carry out one message and answer it."""
        request_id = message.get("id", 0)
        try:
            if "load" in message:
                self._load(message["load"])
                self._say({"loaded": True})
            else:
                self._complete(request_id, message["complete"], message.get("prefix"))
                self._say({"id": request_id, "done": True})
        except (RuntimeError, ValueError, MemoryError, OSError, ImportError) as error:
            self._say({"id": request_id, "error": f"{type(error).__name__}: {error}"})

    def _load(self, options: dict[str, Any]) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = options["path"]
        params.n_ctx = options["context_tokens"]
        params.n_batch = params.n_ubatch = options["batch_tokens"]
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.cache_ram_mib = 0  # one slot keeps its prefix; a second copy would only cost memory
        params.warmup = False
        params.verbosity = -1
        params.api_keys = [self._key]
        self._prefixes = _made(options.get("prefixes"))
        if self._prefixes is not None:
            params.slot_save_path = f"{self._prefixes}{os.sep}"
            params.endpoint_slots = True
        self._server = xllamacpp.Server(params)

    def _complete(self, request_id: int, request: dict[str, Any], prefix: str | None) -> None:
        self._restore(prefix)

        def take(chunk: dict[str, Any]) -> bool:
            self._say({"id": request_id, "chunk": chunk})
            return request_id in self._stopped  # True ends the computation

        if request_id not in self._stopped:
            self._server.handle_chat_completions(request, take)
            if request_id not in self._stopped:
                self._save(prefix)

    def _restore(self, prefix: str | None) -> None:
        """Bring a kept prefix into the slot, once, when another or none is there."""
        if prefix and self._prefixes and prefix != self._held and (self._prefixes / prefix).is_file():
            self._slot("restore", prefix)
        self._held = prefix

    def _save(self, prefix: str | None) -> None:
        """Keep the slot's state; the oldest kept ones make room."""
        if not prefix or not self._prefixes or (self._prefixes / prefix).is_file():
            return
        self._slot("save", f"{prefix}.part")
        with contextlib.suppress(OSError):
            (self._prefixes / f"{prefix}.part").replace(self._prefixes / prefix)
        kept = sorted(self._prefixes.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[KEPT_PREFIXES:]:
            path.unlink(missing_ok=True)

    def _slot(self, action: str, name: str) -> None:
        """Ask the library's own loopback port; without an answer the prefix is simply computed again."""
        url = f"{self._server.listening_address}/slots/0?action={action}"
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps({"filename": name}).encode(), headers)  # noqa: S310 - loopback
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(request, timeout=30) as response:
            response.read()

    def _say(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


def _made(folder: str | None) -> Path | None:
    """Return the folder that keeps prefixes; None when none is wanted or it cannot be made."""
    if folder is None:
        return None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return Path(folder)


def main() -> None:
    """Serve standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the hub's affair; it closes our input
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    protocol = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever the native library prints must not mix with answers
    worker = Worker(protocol)
    messages: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=16)

    def read() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "stop" in message:
                worker.stop(message["stop"])
            else:
                messages.put(message)
        os._exit(0)  # the hub is gone: nobody waits for the computation

    threading.Thread(target=read, daemon=True).start()
    while (message := messages.get()) is not None:
        worker.handle(message)


if __name__ == "__main__":
    main()
