"""The embedded model: GGUF weights on this machine through llama.cpp, its output held to a grammar.

Called by `agents.compact_planner` through the `GrammarModel` port; made by `llm.opening`. It plans with typed tools; it
is no model for screens or pictures. The weights live in a child process (`embedded_worker`), so nothing here blocks.

    idle ──load──▶ loaded ──generate──▶ busy ──▶ loaded ──close──▶ idle          child dies ──▶ idle, ModelError
"""

import asyncio
import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starloom.errors import ModelError
from starloom.llm.metering import current_meter
from starloom.llm.port import Follow, Generated, Message, Progress, Usage, estimated_tokens
from starloom.llm.settings import EMBEDDED, ModelProfile
from starloom.llm.tracing import Tracing
from starloom.llm.weights import default_directory

GGUF_MAGIC = b"GGUF"
_LINE_LIMIT = 1 << 24
_STOP_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    """How the weights are run. `threads` None: the physical cores; more than those only slows it down.

    `prefixes`: a folder that keeps the state of the stable first turns between processes; None keeps nothing.
    """

    context_tokens: int = 4096
    threads: int | None = None
    batch_tokens: int = 128  # a cancel is noticed between batches of the prompt
    timeout_s: float = 300.0
    prefixes: Path | None = None


class _Taken:
    """The pieces of one reply, as they come; a piece is a token."""

    def __init__(self, model: str, follow: Follow | None) -> None:
        self.chunks: list[dict[str, Any]] = []
        self.is_sent = False
        self._model = model
        self._follow = follow

    def sent(self) -> None:
        self.is_sent = True
        self._tell()

    def take(self, chunk: dict[str, Any]) -> None:
        self.chunks.append(chunk)
        self._tell()

    def _tell(self) -> None:
        if self._follow is not None:
            self._follow(Progress(self._model, output_tokens=len(self.chunks)))


class EmbeddedModel:
    """A `GrammarModel` over a GGUF file. Loads at the first use or by `load`; `close` frees the memory."""

    def __init__(self, weights: Path, settings: EmbeddedSettings | None = None, tracing: Tracing | None = None) -> None:
        self._tracing = tracing or Tracing()
        self._weights = weights
        self._settings = settings or EmbeddedSettings(prefixes=default_directory() / "prefixes")
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()  # guards the child: one request at a time
        self._numbers = itertools.count(1)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self._weights.stem

    @property
    def _profile(self) -> ModelProfile:
        return ModelProfile(provider=EMBEDDED, model=self.name)

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._child is not None and self._child.returncode is None

    async def load(self) -> None:
        """Bring the weights into memory; at once when they are there.

        Raises:
            ModelError: the runtime is not installed, or the file is missing, broken or too big for the memory.
        """
        async with self._turn:
            await self._loaded()

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> Generated:
        """Return text that the grammar accepts, always the most probable one (temperature 0).

        Cancelling stops the computation before the cancellation goes on.

        Raises:
            ModelError: the weights cannot be loaded, it took too long, or the reply was cut off at `max_tokens`.
        """
        if any(message.images for message in messages):
            raise ModelError(f"The embedded model {self.name!r} cannot see pictures. Choose a vision model.")
        request = {
            "messages": [{"role": message.role, "content": without_marks(message.text)} for message in messages],
            "grammar": grammar,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sending = Usage(estimated_tokens(messages), cost=0.0, is_estimated=True)
        current_meter().before(self.name, sending, max_tokens)
        taken = _Taken(self.name, follow)
        async with self._turn:
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    child = await self._loaded()
                    with self._tracing.request(self._profile, "", messages, max_tokens=max_tokens) as traced:
                        await self._complete(child, request, self._prefix_key(messages), taken)
                        generated = assemble(taken.chunks, self.name, max_tokens)
                        traced.answered(generated.text, self.name, "stop", generated.usage)
                    return generated
            except (asyncio.CancelledError, TimeoutError, ModelError) as ended:
                if taken.is_sent:
                    used = replace(sending, output_tokens=len(taken.chunks))
                    current_meter().wasted.append((self.name, used))
                if isinstance(ended, TimeoutError):
                    raise ModelError(
                        f"The embedded model {self.name!r} gave no reply within {self._settings.timeout_s:.0f} s."
                    ) from ended
                raise

    async def close(self) -> None:
        """Free the memory; a later use loads again."""
        child, self._child = self._child, None
        if child is not None:
            await _end(child)

    async def _complete(
        self, child: asyncio.subprocess.Process, request: dict[str, Any], prefix: str | None, taken: "_Taken"
    ) -> None:
        number = next(self._numbers)
        await self._send(child, {"id": number, "complete": request, "prefix": prefix})
        taken.sent()
        answers = self._answers(child, number)
        try:
            async for answer in answers:
                taken.take(answer["chunk"])
        except asyncio.CancelledError:
            await self._stop(child, number)
            raise
        finally:
            await answers.aclose()

    async def _stop(self, child: asyncio.subprocess.Process, number: int) -> None:
        """Have the child end a request; end the child when it does not listen."""
        try:
            async with asyncio.timeout(_STOP_GRACE_S):
                await self._send(child, {"stop": number})
                async for _ in self._answers(child, number):
                    pass
        except (TimeoutError, ModelError):
            await self.close()

    async def _answers(self, child: asyncio.subprocess.Process, number: int) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the answers to a request until it is done."""
        while True:
            answer = await self._receive(child)
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise ModelError(f"The embedded model {self.name!r} refused the request: {answer['error']}")
            if answer.get("done"):
                return
            yield answer

    async def _loaded(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None:
            return self._child
        await asyncio.to_thread(check_file, self._weights)
        settings = self._settings
        environment = {
            **os.environ,
            "OMP_WAIT_POLICY": "passive",
        }  # spinning threads starve each other: 0.4 not 5 tok/s
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "starloom.llm.embedded_worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            limit=_LINE_LIMIT,
        )
        self._child = child
        options = {
            "path": str(self._weights),
            "context_tokens": settings.context_tokens,
            "batch_tokens": settings.batch_tokens,
            "threads": settings.threads or physical_cores(),
            "prefixes": str(settings.prefixes) if settings.prefixes else None,
        }
        try:
            await self._send(child, {"load": options})
            answer = await self._receive(child)
        except BaseException:  # cancelled or broken: half-loaded weights are of no use
            await self.close()
            raise
        if "error" in answer:
            await self.close()
            raise ModelError(_load_error(str(answer["error"]), self._weights))
        return child

    async def _send(self, child: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        assert child.stdin is not None  # noqa: S101 - a pipe was asked for
        try:
            child.stdin.write(json.dumps(message).encode() + b"\n")
            await child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died(child) from error

    async def _receive(self, child: asyncio.subprocess.Process) -> dict[str, Any]:
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        line = await child.stdout.readline()
        if not line:
            await child.wait()
            raise self._died(child)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self, child: asyncio.subprocess.Process) -> ModelError:
        if self._child is child:
            self._child = None
        code = child.returncode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return ModelError(
            f"The embedded model's process ended by {how}, which often means too little memory. "
            "Close other programs and try again, or choose a model behind an address."
        )

    def _prefix_key(self, messages: Sequence[Message]) -> str | None:
        """Name the state of the turns before the last one of the user; None when nothing is kept.

        Turns of the assistant after it are the beginning of the reply, which is no more stable than the request.
        """
        asked = max((i for i, message in enumerate(messages) if message.role == "user"), default=0)
        stable = messages[:asked]
        if self._settings.prefixes is None or not stable:
            return None
        size = self._weights.stat().st_size
        text = repr(
            [
                self.name,
                size,
                _runtime_version(),
                self._settings.context_tokens,
                [(turn.role, turn.text) for turn in stable],
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def without_marks(text: str) -> str:
    """Return the text with the marks that would end a turn or begin another one broken up, wherever it comes from."""
    return text.replace("<|", "< |")


def _runtime_version() -> str:
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return ""


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


def check_file(weights: Path) -> None:
    """Raise a `ModelError` that says what to do when the file is missing or no GGUF file."""
    try:
        with weights.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelError(
            f"The weights {str(weights)!r} cannot be read: {error.strerror}. Install them with: starloom model install"
        ) from error
    if magic != GGUF_MAGIC:
        raise ModelError(f"{str(weights)!r} is not a GGUF file. Name one, or run: starloom model install")


async def _end(child: asyncio.subprocess.Process) -> None:
    """End the child and wait for it; it holds nothing that must be put away."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    await child.communicate()


def _load_error(error: str, weights: Path) -> str:
    if error.startswith(("ImportError", "ModuleNotFoundError")):
        return "The embedded model needs the package xllamacpp. Install it with: pip install 'starloom[local-model]'"
    return (
        f"The weights {str(weights)!r} cannot be loaded: {error}. "
        "Check the free memory, or install them again with: starloom model install"
    )


def _refused(name: str, why: str) -> str:
    if "context size" in why:
        return (
            f"The request and the connected devices' tools are too long for the embedded model {name!r} ({why}). "
            "Say it shorter, put the long text into a file and name that, or choose a larger model."
        )
    return f"The embedded model {name!r} refused the request: {why}"


def assemble(chunks: Sequence[dict[str, Any]], name: str, max_tokens: int) -> Generated:
    """Join a stream's chunks; the numbers come with the last ones.

    Raises:
        ModelError: the stream holds an error, was cut off, or has no end.
    """
    text: list[str] = []
    finish_reason = None
    usage = Usage(cost=0.0)  # known: our own electricity
    for chunk in chunks:
        if error := chunk.get("error"):
            raise ModelError(_refused(name, str(error.get("message", error))))
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
