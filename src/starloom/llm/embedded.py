"""The embedded model: GGUF weights in this process through llama.cpp, its output held to a grammar.

Called by `agents.compact_planner` through the `GrammarModel` port; made by `session`. It plans with typed tools; it is
no model for screens or pictures. One thread owns the native library, so nothing here blocks the event loop.

    idle ──load──▶ loaded ──generate / warm──▶ busy ──▶ loaded ──close──▶ closed
"""

import asyncio
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starloom.errors import ModelError
from starloom.llm.port import Generated, Message, Usage

R = TypeVar("R")

GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """How the weights are run. `threads` None: the physical cores; more than those only slows it down."""

    context_tokens: int = 4096
    threads: int | None = None
    batch_tokens: int = 256  # a cancel is noticed between batches of the prompt
    timeout_s: float = 300.0


class EmbeddedModel:
    """A `GrammarModel` over a GGUF file. Loads at the first use or by `load`; `close` frees the memory."""

    def __init__(self, weights: Path, settings: EmbeddedSettings | None = None) -> None:
        self._weights = weights
        self._settings = settings or EmbeddedSettings()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded-model")
        self._server: Any = None  # xllamacpp.Server, which has no types

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self._weights.stem

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._server is not None

    async def load(self) -> None:
        """Bring the weights into memory; at once when they are there.

        Raises:
            ModelError: the runtime is not installed, or the file is missing, broken or too big for the memory.
        """
        await self._in_thread(self._load)

    async def warm(self, messages: list[Message]) -> Usage:
        """Compute the stable first turns ahead, so that the first request need not wait for them."""
        generated = await self._run(messages, 'root ::= "."', max_tokens=4)
        return generated.usage

    async def generate(self, messages: list[Message], grammar: str, *, max_tokens: int = 512) -> Generated:
        """Return text that the grammar accepts, always the most probable one (temperature 0).

        Cancelling stops the computation before the cancellation goes on.

        Raises:
            ModelError: the weights cannot be loaded, it took too long, or the reply was cut off at `max_tokens`.
        """
        return await self._run(messages, grammar, max_tokens=max_tokens)

    async def close(self) -> None:
        """Free the memory and end the thread."""
        await self._in_thread(self._unload)
        self._thread.shutdown(wait=False)

    async def _run(self, messages: list[Message], grammar: str, *, max_tokens: int) -> Generated:
        if any(message.images for message in messages):
            raise ModelError(f"The embedded model {self.name!r} cannot see pictures. Choose a vision model.")
        stop = threading.Event()
        request = {
            "messages": [{"role": message.role, "content": message.text} for message in messages],
            "grammar": grammar,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                chunks = await self._in_thread(lambda: self._complete(request, stop), stop)
        except TimeoutError as error:
            raise ModelError(
                f"The embedded model {self.name!r} gave no reply within {self._settings.timeout_s:.0f} s."
            ) from error
        return _assemble(chunks, self.name, max_tokens)

    async def _in_thread(self, work: Callable[[], R], stop: threading.Event | None = None) -> R:
        """Run in the owner thread; when cancelled, ask it to stop and wait until it has."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if stop is not None:
                stop.set()
            await asyncio.wait([future])
            future.exception()
            raise

    def _load(self) -> None:
        if self._server is not None:
            return
        _check_file(self._weights)
        # Spinning threads starve each other on a busy machine: 0.4 instead of 5 tokens a second. Read at library load.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            import xllamacpp
        except ImportError as error:
            raise ModelError(
                "The embedded model needs the package xllamacpp. Install it with: pip install 'starloom[local-model]'"
            ) from error
        threads = self._settings.threads or physical_cores()
        params = xllamacpp.CommonParams()
        params.model.path = str(self._weights)
        params.n_ctx = self._settings.context_tokens
        params.n_batch = params.n_ubatch = self._settings.batch_tokens
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.cache_ram_mib = 0  # one slot keeps its prefix; a second copy would only cost memory
        params.warmup = False
        params.verbosity = -1
        params.api_keys = [secrets.token_hex(16)]  # the library also opens a loopback port; nobody else may use it
        try:
            self._server = xllamacpp.Server(params)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise ModelError(
                f"The weights {str(self._weights)!r} cannot be loaded: {error}. "
                "Check the free memory, or install them again with: starloom model install"
            ) from error

    def _complete(self, request: dict[str, Any], stop: threading.Event) -> list[dict[str, Any]]:
        if stop.is_set():
            return []
        self._load()
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return stop.is_set()  # True ends the computation

        try:
            self._server.handle_chat_completions(request, take)
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"The embedded model {self.name!r} refused the request: {error}") from error
        return chunks

    def _unload(self) -> None:
        self._server = None


def physical_cores() -> int:
    """Return how many physical cores this process may use; logical ones where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        cores = set()
        for cpu in allowed:
            topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
            try:
                cores.add(tuple((topology / name).read_text() for name in ("physical_package_id", "core_id")))
            except OSError:
                return len(allowed)
        return len(cores)
    return os.cpu_count() or 1


def _check_file(weights: Path) -> None:
    try:
        with weights.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelError(
            f"The weights {str(weights)!r} cannot be read: {error.strerror}. Install them with: starloom model install"
        ) from error
    if magic != GGUF_MAGIC:
        raise ModelError(f"{str(weights)!r} is not a GGUF file. Name one, or run: starloom model install")


def _assemble(chunks: list[dict[str, Any]], name: str, max_tokens: int) -> Generated:
    """Join a stream's chunks; the numbers come with the last ones."""
    text: list[str] = []
    finish_reason = None
    usage = Usage(cost=0.0)  # known: our own electricity
    for chunk in chunks:
        if error := chunk.get("error"):
            raise ModelError(f"The embedded model {name!r} refused the request: {error.get('message', error)}")
        for choice in chunk.get("choices", ()):
            text.append(choice.get("delta", {}).get("content") or "")
            finish_reason = choice.get("finish_reason") or finish_reason
        if counts := chunk.get("usage"):
            details = counts.get("prompt_tokens_details") or {}
            usage = Usage(
                input_tokens=counts.get("prompt_tokens", 0),
                output_tokens=counts.get("completion_tokens", 0),
                cached_tokens=details.get("cached_tokens", 0),
                cost=0.0,
            )
    if finish_reason == "length":
        raise ModelError(f"The embedded model's reply was cut off after {max_tokens} tokens. Ask for less at once.")
    if finish_reason is None:
        raise ModelError(f"The embedded model {name!r} ended without a reply.")
    return Generated("".join(text), name, usage)
