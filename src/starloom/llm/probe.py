"""The model doctor: find out in under a minute what an unknown model can do, and keep the verdict.

Called by `cli` (`model test`, `doctor`). Each check is one small request; one that fails is a finding, not an error.
The verdict sets what `completion` would else find out by being refused.

    listed    the endpoint lists models, this one among them; its context size, where it says so
    words     a reply with nothing but JSON asked for in words            native   held to a JSON schema
    tool      as the arguments of a tool call                             picture  names the colour of a red square
    speed     tokens a second over a longer reply                         streams  a reply can be followed
"""

import asyncio
import json
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from starloom.clock import Clock
from starloom.errors import StoreError
from starloom.llm.answers import Answer
from starloom.llm.completion import Asking
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.fitting import Fitted, read_reply
from starloom.llm.openai_compatible import ListedModel
from starloom.llm.port import Image, Message, Progress
from starloom.llm.settings import ModelProfile, OutputMode

LISTING_S = 8.0
DEADLINE_S = 50.0  # of the checks; with the listing it is under a minute
ROOMY_TOKENS = 8_000


class Finding(BaseModel):
    """What one check found. `works` None: it could not be told, `detail` says why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str
    works: bool | None
    detail: str = ""


class Verdict(BaseModel):
    """All findings about one model at one endpoint, and what follows for its profile."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    endpoint: str
    at: datetime
    findings: tuple[Finding, ...]
    context_tokens: int | None = None

    def works(self, check: str) -> bool | None:
        """Return what a check found."""
        return next((item.works for item in self.findings if item.check == check), None)

    def applied_to(self, profile: ModelProfile) -> ModelProfile:
        """Return the profile with what the user left open set to what was found."""
        changes: dict[str, object] = {}
        if profile.output_mode is OutputMode.AUTO:
            found = [mode for mode in _BEST_FIRST if self.works(_CHECK_OF[mode])]
            changes |= {"output_mode": found[0]} if found else {}
        if profile.sees_images is None and self.works("picture") is not None:
            changes["sees_images"] = self.works("picture")
        if profile.stream and self.works("streams") is False:
            changes["stream"] = False
        if profile.context_tokens is None and self.context_tokens:
            changes["context_tokens"] = self.context_tokens
        return profile.model_copy(update=changes)


def outlook(verdict: Verdict, *, is_priced: bool) -> list[tuple[str, bool | None, str]]:
    """Return what will work with the model and what will not, each with a reason; None: it could not be told.

    Args:
        verdict: what the checks found.
        is_priced: whether the model's price is known.
    """
    modes = [mode.value for mode in _BEST_FIRST if verdict.works(_CHECK_OF[mode])]
    replies = f"structured replies: {', '.join(modes)}" if modes else "no structured reply came"
    roomy = verdict.context_tokens is None or verdict.context_tokens >= ROOMY_TOKENS
    room = "" if roomy else f", but a context of {verdict.context_tokens} tokens is small: expect older turns left out"
    sees, streams = verdict.works("picture"), verdict.works("streams")
    sight = {True: "it sees pictures", False: "it sees no pictures", None: "it could not be told"}[sees]
    return [
        ("plan a request", bool(modes), replies),
        ("pursue goals with tools", bool(modes), replies + room),
        ("work on screens by picture", bool(modes) and sees, sight),
        ("show progress, stop at once", streams, "it streams" if streams else "replies are taken whole"),
        ("keep a budget in dollars", is_priced, "its price is known" if is_priced else "set its price in the settings"),
    ]


_BEST_FIRST = (OutputMode.NATIVE, OutputMode.TOOL, OutputMode.PROMPTED)
_CHECK_OF = {OutputMode.NATIVE: "native", OutputMode.TOOL: "tool", OutputMode.PROMPTED: "words"}


class Probing(Asking, Protocol):
    """A connection that can also list the endpoint's models."""

    async def listed(self) -> list[ListedModel]:
        """Return the models that the endpoint lists."""
        ...


class _Colour(BaseModel):
    """The colour of the square."""

    colour: Literal["red", "green", "blue", "unknown"]


class _Numbers(BaseModel):
    """A list of whole numbers."""

    numbers: list[int]


async def probe(connection: Probing, clock: Clock, told: Callable[[Finding], None] = lambda _: None) -> Verdict:
    """Return the verdict; `told` hears of each finding as it comes. Never longer than a minute.

    Raises:
        ModelFault: the model cannot be asked at all (wrong key, unknown, unreachable), so that no check has a meaning.
    """
    checks: tuple[Callable[[], Awaitable[Finding]], ...] = (
        lambda: _mode(connection, "words", OutputMode.PROMPTED),
        lambda: _mode(connection, "native", OutputMode.NATIVE),
        lambda: _mode(connection, "tool", OutputMode.TOOL),
        lambda: _picture(connection),
        lambda: _streams(connection),
        lambda: _speed(connection, clock),
    )
    listing, context = await _listing(connection)
    findings = [listing]
    told(listing)
    with suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            for check in checks:
                findings.append(await check())
                told(findings[-1])
    profile = connection.profile
    return Verdict(
        model=profile.model,
        endpoint=connection.base_url,
        at=clock.now(),
        findings=tuple(findings),
        context_tokens=context,
    )


async def _listing(connection: Probing) -> tuple[Finding, int | None]:
    name = connection.profile.model
    try:
        async with asyncio.timeout(LISTING_S):
            listed = await connection.listed()
    except TimeoutError:
        return Finding(check="listed", works=None, detail=f"no list within {LISTING_S:g} s"), None
    except ModelFault as fault:
        if fault.kind in (FaultKind.WRONG_KEY, FaultKind.UNREACHABLE, FaultKind.NOT_JSON):
            raise
        return Finding(check="listed", works=None, detail="the endpoint lists no models"), None
    here = next((item for item in listed if item.name == name), None)
    if here is None:
        others = ", ".join(item.name for item in listed[:5])
        return Finding(check="listed", works=False, detail=f"the endpoint lists: {others or 'none'}"), None
    detail = f"context of {here.context_tokens} tokens" if here.context_tokens else "it does not say its context size"
    return Finding(check="listed", works=True, detail=detail), here.context_tokens


async def _mode(connection: Probing, check: str, mode: OutputMode) -> Finding:
    """Ask for one fixed value in this mode."""
    turns = [Message("system", "Answer with JSON."), Message("user", 'The square is red. Answer {"colour": "red"}.')]
    try:
        answer = await connection.ask(turns, _Colour, mode, max_tokens=2048)
    except ModelFault as fault:
        if check == "words" and fault.kind is not FaultKind.BAD_REQUEST:
            raise  # the plainest request fails: there is nothing to find out
        return Finding(check=check, works=False, detail=fault.message)
    return _colour_finding(check, answer)


async def _picture(connection: Probing) -> Finding:
    turns = [Message("user", "Which colour has this square? Answer in JSON.", (Image(red_square()),))]
    try:
        answer = await connection.ask(turns, _Colour, OutputMode.PROMPTED, max_tokens=2048)
    except ModelFault as fault:
        works = False if fault.kind is FaultKind.BAD_REQUEST else None
        return Finding(check="picture", works=works, detail=fault.message)
    return _colour_finding("picture", answer)


def _colour_finding(check: str, answer: Answer) -> Finding:
    outcome = read_reply(answer.text, _Colour, answer.finish)
    if not isinstance(outcome, Fitted):
        return Finding(check=check, works=False, detail=outcome.reason)
    if outcome.value.colour != "red":
        return Finding(check=check, works=False, detail=f"it said {outcome.value.colour} instead of red")
    return Finding(check=check, works=True, detail=", ".join(outcome.repairs))


async def _streams(connection: Probing) -> Finding:
    turns = [Message("user", 'The square is red. Answer {"colour": "red"}.')]
    heard: list[Progress] = []
    try:
        await connection.ask(
            turns, _Colour, OutputMode.PROMPTED, max_tokens=2048, follow=heard.append, is_streamed=True
        )
    except ModelFault as fault:
        works = False if fault.kind in (FaultKind.BAD_REQUEST, FaultKind.BROKEN_OFF) else None
        return Finding(check="streams", works=works, detail=fault.message)
    thinks = "it thinks aloud" if any(progress.is_thinking for progress in heard) else ""
    return Finding(check="streams", works=True, detail=thinks)


async def _speed(connection: Probing, clock: Clock) -> Finding:
    turns = [Message("user", 'Count from 1 to 60. Answer in JSON: {"numbers": [1, 2, …]}')]
    start = clock.monotonic()
    try:
        answer = await connection.ask(turns, _Numbers, OutputMode.PROMPTED, max_tokens=2048)
    except ModelFault as fault:
        return Finding(check="speed", works=None, detail=fault.message)
    seconds = clock.monotonic() - start
    if answer.usage is None or not answer.usage.output_tokens or seconds <= 0:
        return Finding(check="speed", works=None, detail="the endpoint counts no tokens")
    rate = answer.usage.output_tokens / seconds
    return Finding(check="speed", works=True, detail=f"{rate:.0f} tokens a second")


def red_square(side: int = 64) -> bytes:
    """Return a PNG of a red square."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\x00" + b"\xff\x00\x00" * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The kept verdicts, one JSON file, by model and endpoint."""

    path: Path

    def find(self, model: str, endpoint: str) -> Verdict | None:
        """Return the kept verdict; None when there is none."""
        found = self._read().get(_key(model, endpoint))
        try:
            return Verdict.model_validate(found) if found is not None else None
        except ValidationError:
            return None  # kept by another version; the doctor can look again

    def keep(self, verdict: Verdict) -> None:
        """Store a verdict in place of an older one.

        Raises:
            StoreError: the file cannot be written.
        """
        kept = {**self._read(), _key(verdict.model, verdict.endpoint): verdict.model_dump(mode="json")}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            part.replace(self.path)
        except OSError as error:
            raise StoreError(f"The verdict cannot be kept in {str(self.path)!r}: {error.strerror}.") from error

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _key(model: str, endpoint: str) -> str:
    return f"{model} at {endpoint}"
