"""UFO's file of agents as our settings: same models, no key, and a note for what is left out."""

import pytest
import yaml

from starloom.errors import UsageError
from starloom.llm.agents_yaml import as_document, imported
from starloom.llm.settings import ModelSettings, Role

SECRET = "sk-0123456789abcdef"
UFO = f"""
HOST_AGENT: &host
  VISUAL_MODE: True
  API_TYPE: "openai"
  API_BASE: "https://api.openai.com/v1/chat/completions"
  API_KEY: "{SECRET}"
  API_MODEL: "gpt-4o"
APP_AGENT:
  <<: *host
BACKUP_AGENT:
  VISUAL_MODE: False
  API_TYPE: "aoai"
  API_BASE: "https://res.openai.azure.com"
  API_KEY: "another-{SECRET}"
  API_VERSION: "2024-10-21"
  API_MODEL: "gpt-4o"
  API_DEPLOYMENT_ID: "our-gpt"
  USE_RESPONSES: True
EVALUATION_AGENT:
  API_TYPE: "azure_ad"
  API_MODEL: "gpt-4o"
TIMEOUT: 60
TEMPERATURE: 0.0
"""


def one(**block: object) -> ModelSettings:
    return imported({"CONSTELLATION_AGENT": block}).settings


def test_agents_become_profiles_and_roles_without_their_keys() -> None:
    found = imported(yaml.safe_load(UFO))
    settings = found.settings
    assert settings.default == "host"
    assert settings.profile_for(Role.APP) == settings.profile_for(Role.HOST)
    host, backup = settings.profile_for(Role.HOST), settings.profile_for(Role.BACKUP)
    assert (host.provider, host.model, host.base_url, host.key_variable) == ("openai", "gpt-4o", None, "OPENAI_API_KEY")
    assert (backup.provider, backup.model, backup.api_version) == ("azure", "our-gpt", "2024-10-21")
    assert (backup.sees_images, backup.timeout_s) == (False, 60)
    assert any("EVALUATION_AGENT is of the type 'azure_ad'" in note for note in found.notes)
    assert any("Responses API" in note for note in found.notes)
    assert SECRET not in str(found)


def test_the_document_reads_back_as_the_same_settings() -> None:
    settings = imported(yaml.safe_load(UFO)).settings
    text = yaml.safe_dump(as_document(settings))
    assert ModelSettings.model_validate(yaml.safe_load(text)["models"]) == settings


@pytest.mark.parametrize(
    ("block", "provider", "base_url"),
    [
        ({"API_TYPE": "openai", "API_BASE": "http://127.0.0.1:8000/v1"}, "endpoint", "http://127.0.0.1:8000/v1"),
        ({"API_TYPE": "qwen", "API_BASE": "https://dashscope-intl.aliyuncs.com/api/v1"}, "dashscope-intl", None),
        ({"API_TYPE": "ollama", "API_BASE": "http://localhost:11434"}, "ollama", "http://localhost:11434/v1"),
        ({"API_TYPE": "claude", "API_BASE": "https://api.anthropic.com"}, "anthropic", None),
        ({"API_TYPE": "deepseek"}, "deepseek", None),
        ({"API_TYPE": "gemini"}, "gemini", None),
    ],
)
def test_each_type_has_its_provider(block: dict[str, str], provider: str, base_url: str | None) -> None:
    profile = one(API_MODEL="m", **block).profile_for(Role.CONSTELLATION)
    assert (profile.provider, profile.base_url) == (provider, base_url)


def test_two_keys_of_one_provider_get_two_variables_and_a_named_one_keeps_its_name() -> None:
    block = {"API_TYPE": "openai", "API_MODEL": "m"}
    found = imported(
        {
            "HOST_AGENT": {**block, "API_KEY": "sk-one"},
            "APP_AGENT": {**block, "API_KEY": "sk-two"},
            "BACKUP_AGENT": {**block, "API_KEY": "${OUR_KEY}"},
        }
    ).settings
    names = [found.profile_for(role).key_variable for role in (Role.HOST, Role.APP, Role.BACKUP)]
    assert names == ["OPENAI_API_KEY", "STARLOOM_APP_KEY", "OUR_KEY"]


@pytest.mark.parametrize(
    "content", [None, [], {"OMNIPARSER": {}}, {"HOST_AGENT": 3}, {"APP_AGENT": {"API_TYPE": "qwen", "API_MODEL": "m"}}]
)
def test_what_cannot_be_used_is_said(content: object) -> None:
    with pytest.raises(UsageError):
        imported(content)
