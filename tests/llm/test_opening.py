"""From settings to a model: the backup behind it, and what the doctor found applied to it."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from starloom.clock import ManualClock
from starloom.errors import UsageError
from starloom.llm.completion import ProviderModel
from starloom.llm.fallback import FallbackModel
from starloom.llm.opening import installed_weights, open_embedded, open_role
from starloom.llm.port import Message
from starloom.llm.probe import Finding, Verdict, Verdicts
from starloom.llm.scripted import Fault, ScriptedServer
from starloom.llm.settings import ModelProfile, ModelSettings, OutputMode, Role, parse_model
from starloom.llm.weights import KNOWN_MODELS


class Word(BaseModel):
    """A word."""

    word: str


def no_keyring(_: str) -> None:
    return None


async def test_backup_answers_when_the_role_s_model_is_down() -> None:
    with ScriptedServer([Fault(503)]) as down, ScriptedServer([{"word": "hi"}]) as up:
        settings = ModelSettings(default=down.model_form, roles={Role.BACKUP: up.model_form})
        model = open_role(settings, Role.HOST, {}, ManualClock(), keyring_lookup=no_keyring)
        assert isinstance(model, FallbackModel)
        reply = await model.complete([Message("user", "hi")], Word)
        await model.close()
    assert reply.value.word == "hi"
    assert reply.repairs == ("fell_back",)


def test_kept_verdict_fills_in_what_the_profile_leaves_open(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path / "verdicts.json")
    findings = (Finding(check="native", works=False), Finding(check="tool", works=True))
    kept.keep(Verdict(model="m", endpoint="http://x/v1", at=ManualClock().now(), findings=findings))
    settings = ModelSettings(
        profiles={"mine": ModelProfile(provider="endpoint", model="m", base_url="http://x/v1")}, default="mine"
    )
    model = open_role(settings, Role.APP, {}, ManualClock(), keyring_lookup=no_keyring, verdicts=kept)
    assert isinstance(model, ProviderModel)
    assert model.output_mode is OutputMode.TOOL


def test_no_choice_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="STARLOOM_MODEL"):
        open_role(ModelSettings(), Role.APP, {}, ManualClock(), keyring_lookup=no_keyring)


def test_only_whole_weights_count_as_installed(tmp_path: Path) -> None:
    (tmp_path / KNOWN_MODELS[0].file_name).write_bytes(b"GGUF")
    assert installed_weights(tmp_path) is None


async def test_own_file_is_used_without_an_installation(tmp_path: Path) -> None:
    model = open_embedded(parse_model(f"embedded:{tmp_path}/mine.gguf"), tmp_path)
    assert model.name == "mine"
    await model.close()
