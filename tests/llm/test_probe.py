"""The doctor finds what a model can do over real HTTP, keeps the verdict, and says when there is nothing to find."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from starloom.clock import ManualClock, SystemClock
from starloom.errors import StoreError
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.openai_compatible import Connection
from starloom.llm.probe import Finding, Verdict, Verdicts, outlook, probe, red_square
from starloom.llm.scripted import Fault, Line, Said, ScriptedServer
from starloom.llm.settings import ModelProfile, OutputMode

RED = '{"colour": "red"}'


def answer(body: dict[str, Any]) -> Line:
    """Answer as a model that knows schemas and words but no tools and no pictures."""
    content = body["messages"][-1]["content"]
    if isinstance(content, list):
        return Fault(400, '{"error": {"message": "image input is not supported"}}')
    if "tools" in body:
        return Fault(400, '{"error": {"message": "tools are not supported"}}')
    if "Count" in content:
        return Said(json.dumps({"numbers": [1, 2]}), completion_tokens=120)
    return RED


async def probed(*script: Line, model: str = "scripted", told: list[Finding] | None = None) -> Verdict:
    with ScriptedServer(script) as server:
        connection = Connection(ModelProfile(provider="endpoint", model=model, base_url=server.base_url, timeout_s=5))
        try:
            return await probe(connection, SystemClock(), (told if told is not None else []).append)
        finally:
            await connection.close()


async def test_each_ability_is_found_and_told() -> None:
    told: list[Finding] = []
    verdict = await probed(answer, told=told)
    assert {item.check: item.works for item in verdict.findings} == {
        "listed": True,
        "words": True,
        "native": True,
        "tool": False,
        "picture": False,
        "streams": True,
        "speed": True,
    }
    assert [(what, works) for what, works, _ in outlook(verdict, is_priced=False)] == [
        ("plan a request", True),
        ("pursue goals with tools", True),
        ("work on screens by picture", False),
        ("show progress, stop at once", True),
        ("keep a budget in dollars", False),
    ]
    assert tuple(told) == verdict.findings
    applied = verdict.applied_to(ModelProfile(provider="endpoint", model="scripted"))
    assert (applied.output_mode, applied.sees_images) == (OutputMode.NATIVE, False)


async def test_a_server_without_streams_is_found_and_its_replies_are_taken_whole() -> None:
    def whole(body: dict[str, Any]) -> Line:
        return Fault(200, "<html>", "text/html") if body.get("stream") else answer(body)

    verdict = await probed(whole)
    assert verdict.works("streams") is False
    assert verdict.applied_to(ModelProfile(provider="endpoint", model="scripted")).stream is False


async def test_what_the_user_set_stays() -> None:
    verdict = await probed(answer)
    mine = ModelProfile(provider="endpoint", model="scripted", output_mode=OutputMode.TOOL, sees_images=True)
    assert verdict.applied_to(mine) == mine


async def test_unlisted_model_is_a_finding() -> None:
    verdict = await probed(answer, model="other")
    assert verdict.findings[0] == Finding(check="listed", works=False, detail="the endpoint lists: scripted")


async def test_wrong_answers_are_findings() -> None:
    verdict = await probed('{"colour": "blue"}')
    assert verdict.works("words") is False
    assert verdict.works("picture") is False
    assert verdict.applied_to(ModelProfile(provider="endpoint", model="scripted")).output_mode is OutputMode.AUTO


async def test_model_that_cannot_be_asked_has_no_verdict() -> None:
    with pytest.raises(ModelFault) as caught:
        await probed(Fault(401))
    assert caught.value.kind is FaultKind.WRONG_KEY


async def test_endpoint_that_is_not_there_is_said() -> None:
    connection = Connection(ModelProfile(provider="endpoint", model="m", base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(ModelFault) as caught:
        await probe(connection, SystemClock())
    await connection.close()
    assert caught.value.kind is FaultKind.UNREACHABLE


def test_verdicts_are_kept_by_model_and_endpoint(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path / "cache" / "verdicts.json")
    assert kept.find("m", "http://a") is None
    verdict = Verdict(
        model="m",
        endpoint="http://a",
        at=ManualClock().now(),
        findings=(Finding(check="words", works=True),),
        context_tokens=8192,
    )
    kept.keep(verdict)
    assert kept.find("m", "http://a") == verdict
    assert kept.find("m", "http://b") is None
    assert verdict.applied_to(ModelProfile(provider="endpoint", model="m")).context_tokens == 8192


def test_spoilt_or_unwritable_file_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text("{")
    assert Verdicts(path).find("m", "e") is None
    path.write_text('{"m at e": {"old": 1}}')
    assert Verdicts(path).find("m", "e") is None
    verdict = Verdict(model="m", endpoint="e", at=ManualClock().now(), findings=())
    with pytest.raises(StoreError):
        Verdicts(path / "below" / "file.json").keep(verdict)


def test_picture_is_a_png_of_red_pixels() -> None:
    png = red_square(4)
    assert png.startswith(b"\x89PNG")
    start = png.index(b"IDAT") + 4
    assert zlib.decompress(png[start:-16]) == (b"\x00" + b"\xff\x00\x00" * 4) * 4
