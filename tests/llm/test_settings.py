"""Short forms, roles and keys: clear answers, no key in any message."""

import pytest
from pydantic import ValidationError

from starloom.errors import ModelError, UsageError
from starloom.llm.keys import find_key
from starloom.llm.opening import open_embedded, open_model
from starloom.llm.settings import PROVIDERS, ModelProfile, ModelSettings, Price, Role, parse_model


@pytest.mark.parametrize(
    ("form", "provider", "model", "base_url"),
    [
        ("openai:gpt-5.2", "openai", "gpt-5.2", None),
        ("gpt-5.2", "openai", "gpt-5.2", None),
        ("o4-mini", "openai", "o4-mini", None),
        ("deepseek-chat", "deepseek", "deepseek-chat", None),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b", None),
        ("dashscope-cn:qwen-max", "dashscope-cn", "qwen-max", None),
        ("http://127.0.0.1:8000/v1#qwen3", "endpoint", "qwen3", "http://127.0.0.1:8000/v1"),
        ("https://example.org/v1/#a/b", "endpoint", "a/b", "https://example.org/v1"),
        ("embedded", "embedded", "", None),
        ("embedded:/x/y.gguf", "embedded", "/x/y.gguf", None),
    ],
)
def test_short_forms(form: str, provider: str, model: str, base_url: str | None) -> None:
    profile = parse_model(form)
    assert (profile.provider, profile.model, profile.base_url) == (provider, model, base_url)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("http://127.0.0.1:8000/v1", "#NAME"),
        ("qwen-max", "dashscope-intl:qwen-max or dashscope-cn:qwen-max"),
        ("opnai:gpt-5", "openai:gpt-5"),
        ("whatever", "Known providers"),
        ("", "Known providers"),
    ],
)
def test_unknown_forms_say_what_to_write(form: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model(form)
    assert words in caught.value.message


def test_role_uses_its_profile_else_the_default() -> None:
    mine = ModelProfile(provider="ollama", model="small")
    settings = ModelSettings(profiles={"mine": mine}, roles={Role.HOST: "mine"}, default="openai:gpt-5.2")
    assert settings.profile_for(Role.HOST) is mine
    assert settings.profile_for(Role.APP).model == "gpt-5.2"
    with pytest.raises(UsageError, match="STARLOOM_MODEL"):
        ModelSettings().profile_for(Role.APP)


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(ValidationError):
        ModelProfile(provider="openai", model="m", tempature=1)  # type: ignore[call-arg]


def test_key_comes_from_the_environment_before_the_keyring() -> None:
    profile = parse_model("openai:gpt-5.2")
    key = find_key(profile, {"OPENAI_API_KEY": " sk-1 "}, lambda name: "sk-2")
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert "sk-1" not in repr(key)
    key = find_key(profile, {}, {"openai": "sk-2"}.get)
    assert key is not None
    assert key.get_secret_value() == "sk-2"


def test_own_variable_and_own_keyring_name() -> None:
    profile = ModelProfile(provider="endpoint", model="m", key_variable="MY_KEY", key_name="mine")
    assert find_key(profile, {"OPENAI_API_KEY": "x"}, lambda name: None) is None
    key = find_key(profile, {}, {"mine": "k"}.get)
    assert key is not None


def test_missing_key_says_where_it_was_looked_for() -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        find_key(parse_model("openai:gpt-5.2"), {}, lambda name: None)
    assert find_key(parse_model("ollama:x"), {}, lambda name: None) is None


def test_embedded_is_no_general_model(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="only plans"):
        open_model(parse_model("embedded"), {}, lambda name: None)


def test_embedded_without_weights_says_how_to_get_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ModelError, match="starloom model install"):
        open_embedded(parse_model("embedded"), tmp_path_factory.mktemp("empty"))


def test_every_provider_has_an_address_or_asks_for_one() -> None:
    assert all(
        item.base_url or item.name in ("embedded", "endpoint", "azure", "bedrock") for item in PROVIDERS.values()
    )


def test_price_by_a_models_name_fills_in_a_profile_without_one() -> None:
    mine, listed = Price(input=1, output=2), Price(input=3, output=4)
    profiles = {"own": ModelProfile(provider="openai", model="gpt-9", price=mine)}
    settings = ModelSettings(profiles=profiles, prices={"gpt-9": listed}, default="openai:gpt-9")
    assert settings.profile_for(Role.APP).price == listed
    assert settings.model_copy(update={"default": "own"}).profile_for(Role.APP).price == mine
