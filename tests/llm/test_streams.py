"""A reply that is followed: the same result on every wire, and nothing is ever taken from a stream that goes wrong."""

import asyncio
import importlib.util
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from pydantic import BaseModel, SecretStr
from tests.llm.wires import WIRES, Turn, speaking

from starloom.llm.completion import ProviderModel
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.metering import Meter, metered
from starloom.llm.openai_compatible import Connection, _parameters
from starloom.llm.port import Image, Message, Progress
from starloom.llm.scripted import Broken, Fault, Line, Said, ScriptedServer
from starloom.llm.settings import ModelProfile, OutputMode

PNG = b"\x89PNG\r\n\x1a\n"
ASK = [Message("system", "You click."), Message("user", "Click it.", (Image(PNG),))]
GOOD = {"status": "FINISH", "action": "click the button that is named Save"}
TEXT = json.dumps(GOOD)


class Step(BaseModel):
    """One step."""

    status: Literal["CONTINUE", "FINISH"]
    action: str


@pytest.fixture(params=sorted(WIRES))
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if name == "bedrock":
        if importlib.util.find_spec("boto3") is None:
            pytest.skip("needs the extra `bedrock`")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    return name


@asynccontextmanager
async def opened(name: str, url: str, **changes: Any) -> AsyncIterator[ProviderModel]:
    wire = WIRES[name]
    base_url = url if name not in ("openai", "azure") else f"{url}/openai/v1"
    profile = ModelProfile(provider=wire.provider, model=wire.model, base_url=base_url, **changes)
    model = ProviderModel(Connection(profile, None if name == "bedrock" else SecretStr("sk-key-0123456789")))
    try:
        yield model
    finally:
        await model.close()


async def test_each_wire_gives_the_same_step_whole_and_followed(wire: str) -> None:
    heard: list[Progress] = []
    with speaking(WIRES[wire], Turn(TEXT)) as vendor:
        async with opened(wire, vendor.url) as model:
            whole = await model.complete(ASK, Step)
            followed = await model.complete(ASK, Step, follow=heard.append)
    assert whole.value == followed.value == Step.model_validate(GOOD)
    assert whole.usage == followed.usage
    assert (followed.usage.input_tokens, followed.usage.output_tokens) == (12, 7)
    told = (followed.usage.cached_tokens, followed.usage.reasoning_tokens, followed.usage.image_tokens)
    assert told == {
        "openai": (4, 3, None),
        "azure": (4, 3, None),
        "anthropic": (4, None, None),
        "google": (4, 3, 9),
        "bedrock": (None, None, None),
    }.get(wire)
    assert followed.usage.cache_write_tokens == (2 if wire == "anthropic" else None)
    counts = [progress.output_tokens for progress in heard]
    assert counts[0] == 0
    assert len(counts) > 4
    assert counts == sorted(counts)
    assert not followed.usage.is_estimated
    kept = _parameters(Step, OutputMode.NATIVE).output_object
    assert kept is not None
    assert kept.json_schema == Step.model_json_schema()  # shared by all requests, changed by none


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("breaks", {FaultKind.UNREACHABLE}),
        ("errs", {FaultKind.SERVER_ERROR, FaultKind.RATE_LIMITED}),
        ("hangs", {FaultKind.TIMED_OUT}),
    ],
)
@pytest.mark.parametrize("after", [3, 6])
async def test_a_stream_that_goes_wrong_is_a_fault_and_what_came_is_counted(
    wire: str, how: Any, kinds: set[FaultKind], after: int
) -> None:
    meter = Meter(lambda _model, _tokens: None)
    with speaking(WIRES[wire], Turn(TEXT, after, how)) as vendor, metered(meter):
        async with opened(wire, vendor.url, chunk_gap_s=0.3) as model:
            with pytest.raises(ModelFault) as caught:
                await model.complete(ASK, Step, follow=lambda _: None)
    assert caught.value.kind in kinds
    assert "\n" not in caught.value.message
    assert len(vendor.paths) == 1
    ((name, usage),) = meter.wasted
    assert name == WIRES[wire].model
    assert usage.is_estimated
    assert usage.input_tokens > 0


async def test_a_stream_cut_after_any_piece_never_gives_a_step_and_is_then_taken_whole(wire: str) -> None:
    pieces = WIRES[wire].pieces(TEXT)
    end = next(at for at, piece in enumerate(pieces) if WIRES[wire].end in piece)
    other = json.dumps({**GOOD, "action": "from the whole reply"})
    for after in range(end + 1):
        with speaking(WIRES[wire], Turn(TEXT, after), Turn(other)) as vendor:
            async with opened(wire, vendor.url) as model:
                reply = await model.complete(ASK, Step, follow=lambda _: None)
        assert reply.value.action == "from the whole reply", after
        assert len(vendor.paths) == 2


async def test_cancelling_leaves_the_server_at_once(wire: str) -> None:
    with speaking(WIRES[wire], Turn(TEXT, 5, "hangs")) as vendor:
        async with opened(wire, vendor.url) as model:
            asking = asyncio.create_task(model.complete(ASK, Step, follow=lambda _: None))
            assert await asyncio.to_thread(vendor.is_asked.wait, 30)
            asking.cancel()
            await asyncio.wait([asking])
            assert await asyncio.to_thread(vendor.left.wait, 30)
    assert asking.cancelled()


# What OpenAI-compatible servers do to a stream


@asynccontextmanager
async def scripted(*script: Line, **changes: Any) -> AsyncIterator[tuple[ProviderModel, ScriptedServer]]:
    with ScriptedServer(script) as server:
        profile = ModelProfile(provider="endpoint", model="scripted", base_url=server.base_url, **changes)
        model = ProviderModel(Connection(profile))
        try:
            yield model, server
        finally:
            await model.close()


NO_CHOICES = 'data: {"id": "1", "choices": null, "created": 1, "model": "m", "object": "chat.completion.chunk"}\n\n'


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (Fault(429, retry_after_s=7), FaultKind.RATE_LIMITED),
        (Fault(503, "<html>down</html>", "text/html"), FaultKind.SERVER_ERROR),
        (Fault(200, "<html>\nsign in</html>", "text/html"), FaultKind.NOT_JSON),
        (Fault(200, "", "text/event-stream"), FaultKind.NOT_JSON),
        (Fault(200, "data: {bad\n\n", "text/event-stream"), FaultKind.NOT_JSON),
        (Fault(200, 'data: {"hello": 1}\n\n', "text/event-stream"), FaultKind.NOT_JSON),
        (Fault(200, NO_CHOICES + "data: [DONE]\n\n", "text/event-stream"), FaultKind.NOT_JSON),
        (Fault(200, ": ping\n\n" * 9, "text/event-stream"), FaultKind.NOT_JSON),
        (Said('{"status": "FI', "length"), FaultKind.CUT_OFF),
        (Said("I may not.", "content_filter"), FaultKind.CONTENT_FILTER),
        (Said("no JSON here"), FaultKind.UNUSABLE_REPLY),
        (Broken(TEXT, 0, "errs", "maximum context length is 8192 tokens"), FaultKind.TOO_LONG),
    ],
)
async def test_each_fault_of_a_stream_has_its_kind(line: Line, kind: FaultKind) -> None:
    async with scripted(line) as (model, _):
        with pytest.raises(ModelFault) as caught:
            await model.complete(ASK, Step, follow=lambda _: None)
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message


async def test_a_server_that_knows_no_streams_is_asked_whole_from_then_on() -> None:
    def without_streams(body: dict[str, Any]) -> Line:
        return Fault(400, '{"error": {"message": "stream is not supported"}}') if body.get("stream") else GOOD

    async with scripted(without_streams) as (model, server):
        for _ in range(2):
            assert (await model.complete(ASK, Step, follow=lambda _: None)).value.action == GOOD["action"]
    assert [bool(request.body.get("stream")) for request in server.requests] == [True, False, False]


async def test_a_profile_may_take_every_reply_whole() -> None:
    heard: list[Progress] = []
    async with scripted(GOOD, stream=False) as (model, server):
        await model.complete(ASK, Step, follow=heard.append)
    assert not server.requests[0].body.get("stream")
    assert heard == [Progress("scripted")]


async def test_a_stream_without_usage_is_estimated_and_says_so() -> None:
    for follow in (None, lambda _: None):
        async with scripted(Said(TEXT, has_usage=False)) as (model, _):
            reply = await model.complete(ASK, Step, follow=follow)
        assert reply.usage.is_estimated
        assert reply.usage.input_tokens > 1500  # the picture
        assert reply.usage.output_tokens == len(TEXT) // 4
        assert reply.usage.cost is None


async def test_what_a_filtered_reply_used_is_counted_as_the_provider_says() -> None:
    meter = Meter(lambda _model, _tokens: None)
    async with scripted(Said("no", "content_filter")) as (model, _):
        with metered(meter), pytest.raises(ModelFault):
            await model.complete(ASK, Step)
    assert [(usage.input_tokens, usage.output_tokens, usage.is_estimated) for _, usage in meter.wasted] == [
        (10, 5, False)
    ]


async def test_a_stuck_server_is_told_by_what_was_waited_for() -> None:
    for line, words in ((Fault(hangs=True), "no first word"), (Broken(TEXT, 20, "hangs"), "silence for 0.2 s")):
        async with scripted(line, first_chunk_s=0.2, chunk_gap_s=0.2) as (model, server):
            with pytest.raises(ModelFault, match=words) as caught:
                await model.complete(ASK, Step, follow=lambda _: None)
            assert await asyncio.to_thread(server.left.wait, 30)
        assert caught.value.kind is FaultKind.TIMED_OUT


async def test_an_endless_reply_ends_at_the_limit_for_the_whole() -> None:
    async with scripted(Broken(TEXT, 20, "hangs"), timeout_s=0.3) as (model, _):
        with pytest.raises(ModelFault, match=r"no end in 0\.3 s"):
            await model.complete(ASK, Step, follow=lambda _: None)


async def test_thinking_is_told_apart_and_reads_the_same_whole_and_followed() -> None:
    text = f"<think>Perhaps {{'status': 'CONTINUE'}}?</think>{TEXT}"
    values = []
    for follow in (None, lambda _: None):
        async with scripted(text, "<think>no end " + TEXT) as (model, _):
            values += [await model.complete(ASK, Step, follow=follow) for _ in range(2)]
    assert {reply.value.action for reply in values} == {GOOD["action"]}
    assert [reply.repairs for reply in values[:2]] == [reply.repairs for reply in values[2:]]


async def test_cancelling_a_whole_reply_counts_what_was_sent() -> None:
    arrived = threading.Event()

    def hang(_: dict[str, Any]) -> Fault:
        arrived.set()
        return Fault(hangs=True)

    meter = Meter(lambda _model, _tokens: None)
    async with scripted("no JSON", hang) as (model, server):
        with metered(meter):
            asking = asyncio.create_task(model.complete(ASK, Step))
        assert await asyncio.to_thread(arrived.wait, 30)
        asking.cancel()
        await asyncio.wait([asking])
        assert await asyncio.to_thread(server.left.wait, 30)
    ((name, usage),) = meter.wasted
    assert (name, usage.requests, usage.output_tokens, usage.is_estimated) == ("scripted", 2, 5, True)
    assert usage.input_tokens > 1500


SHORT = '{"status": "FINISH", "action": "x"}'
CUT = [
    SHORT,
    f"```json\n{SHORT}\n```",
    f"Well: {SHORT} ok",
    f"<think>a {SHORT}</think>{SHORT}",
    f"<tool_call>{SHORT}</tool_call>",
    f"[{SHORT}]",
    "{'status': 'FINISH', 'action': 'x',}",
    json.dumps({"response": json.loads(SHORT)}),
    json.dumps(SHORT),
    f"{SHORT}\n{SHORT}",
]


@pytest.mark.parametrize("text", CUT)
async def test_a_stream_cut_at_any_byte_gives_no_answer_at_all(text: str) -> None:
    turns = [Message("user", "Click it.")]
    with ScriptedServer([Broken(text, after, "ends") for after in range(len(text) + 1)]) as server:
        connection = Connection(ModelProfile(provider="endpoint", model="scripted", base_url=server.base_url))
        for _ in range(len(text) + 1):
            with pytest.raises(ModelFault) as caught:
                await connection.ask(turns, Step, OutputMode.PROMPTED, max_tokens=99, is_streamed=True)
            assert caught.value.kind is FaultKind.BROKEN_OFF
        await connection.close()
