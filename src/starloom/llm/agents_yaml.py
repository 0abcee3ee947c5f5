"""UFO's `agents.yaml` and Galaxy's `agent.yaml` as our model settings, with notes on what has no place here.

Called by `cli` (`model import`). Pure. No key is carried over: each profile names the variable where its key belongs.

    API_TYPE            provider                     API_TYPE     provider
    openai              openai, else endpoint        gemini       gemini
    aoai                azure                        claude       anthropic
    qwen                dashscope-cn, -intl          ollama       ollama
    deepseek            deepseek                     azure_ad, operator, custom …   a note
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from starloom.errors import UsageError
from starloom.llm.settings import PROVIDERS, ModelProfile, ModelSettings, Role

_ROLES = {
    "HOST_AGENT": Role.HOST,
    "APP_AGENT": Role.APP,
    "CONSTELLATION_AGENT": Role.CONSTELLATION,
    "EVALUATION_AGENT": Role.EVALUATION,
    "BACKUP_AGENT": Role.BACKUP,
    "OPERATOR": Role.OPERATOR,
}
_SAME_WORD = {"deepseek": "deepseek", "ollama": "ollama", "gemini": "gemini", "claude": "anthropic", "aoai": "azure"}
_FIRST_CHOICE = (Role.CONSTELLATION, Role.HOST, Role.APP)  # whose model is the default
_LEFT_OUT = {
    "USE_RESPONSES": "asks for the Responses API; chat completions are used",
    "TOP_P": "sets TOP_P, which profiles do not have; `extra_body` can",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """The settings that the file means, and what a person must know or do, one line each."""

    settings: ModelSettings
    notes: tuple[str, ...]


class _Untranslated(Exception):
    """An agent's block has no place in our settings; the message says why."""


def imported(content: Any) -> Imported:  # noqa: ANN401 - whatever the file holds
    """Return the file's content as our settings.

    Raises:
        UsageError: no agent of UFO is in it, or none can be translated.
    """
    blocks = {name: block for name, block in content.items() if name in _ROLES} if isinstance(content, dict) else {}
    if not blocks:
        raise UsageError(f"This is no agents.yaml of UFO: none of {', '.join(_ROLES)} is in it.")
    profiles: dict[str, ModelProfile] = {}
    roles: dict[Role, str] = {}
    notes: list[str] = []
    keys: dict[str, str] = {}
    for name, block in blocks.items():
        role = _ROLES[name]
        try:
            if not isinstance(block, dict):
                raise _Untranslated("is no block of settings")
            profile = _profile(name, role, block, content, keys, notes)
        except _Untranslated as problem:
            notes.append(f"{name} {problem}; it is left out.")
            continue
        same = next((known for known, other in profiles.items() if other == profile), None)
        if same is None:
            profiles[role.value] = profile
        roles[role] = same or role.value
    if not profiles:
        raise UsageError(" ".join(["Nothing in this file can be used here.", *notes]))
    default = next((roles[role] for role in _FIRST_CHOICE if role in roles), next(iter(profiles)))
    settings = ModelSettings(
        profiles=profiles, roles={role: name for role, name in roles.items() if name != default}, default=default
    )
    return Imported(settings, tuple(dict.fromkeys(notes)))


def as_document(settings: ModelSettings) -> dict[str, Any]:
    """Return what the settings file would hold: only what was said."""
    return {"models": settings.model_dump(mode="json", exclude_defaults=True)}


def _profile(
    name: str, role: Role, block: Mapping[str, Any], whole: Mapping[str, Any], keys: dict[str, str], notes: list[str]
) -> ModelProfile:
    provider, base_url = _place(block)
    deployment = str(block.get("API_DEPLOYMENT_ID") or "") if provider == "azure" else ""
    said: dict[str, Any] = {"provider": provider, "model": deployment or str(block.get("API_MODEL") or "")}
    if not said["model"]:
        raise _Untranslated("names no API_MODEL")
    if base_url:
        said["base_url"] = base_url
    if provider == "azure" and not base_url.endswith("/v1"):
        said["api_version"] = str(block.get("API_VERSION") or "")
        if not said["api_version"]:
            raise _Untranslated("names no API_VERSION")
    if PROVIDERS[provider].key_variables and block.get("API_KEY"):
        said["key_variable"] = _variable(role, provider, str(block["API_KEY"]), keys)
        notes.append(f"The key of {name} belongs in the variable {said['key_variable']}, not in a file.")
    if block.get("VISUAL_MODE") is False:
        said["sees_images"] = False
    if isinstance(whole.get("TIMEOUT"), int | float):
        said["timeout_s"] = whole["TIMEOUT"]
    if whole.get("TEMPERATURE") and not block.get("REASONING_MODEL"):  # 0 is what we send where a model takes it
        said["temperature"] = whole["TEMPERATURE"]
    notes += [f"{name} {why}." for key, why in _LEFT_OUT.items() if block.get(key) or whole.get(key)]
    try:
        return ModelProfile.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        raise _Untranslated(f"has a value that is none ({first['loc'][0]}: {first['msg']})") from error


def _place(block: Mapping[str, Any]) -> tuple[str, str]:
    """Return the provider and, where it is not the provider's own, the address."""
    kind = str(block.get("API_TYPE") or "openai").lower()
    address = re.sub(r"/(chat/completions|responses)/?$", "", str(block.get("API_BASE") or "")).rstrip("/")
    host = urlsplit(address).hostname or ""
    if kind == "openai":
        return ("openai", "") if host in ("", "api.openai.com") else ("endpoint", address)
    if kind == "qwen":
        if host not in ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"):
            raise _Untranslated("is of type qwen and names no region; choose dashscope-cn or dashscope-intl")
        return ("dashscope-intl" if "intl" in host else "dashscope-cn"), ""
    if kind == "ollama":
        return kind, (address if address.endswith("/v1") else f"{address}/v1") if host else ""
    if kind == "aoai":
        if not host:
            raise _Untranslated("names no API_BASE")
        return "azure", address
    if kind in _SAME_WORD:
        return _SAME_WORD[kind], ""
    raise _Untranslated(f"is of the type {kind!r}, which Starloom does not have")


def _variable(role: Role, provider: str, key: str, keys: dict[str, str]) -> str:
    """Return the variable for a key: the one it names itself, the provider's, or one of its own when that is taken."""
    named = re.fullmatch(r"\$\{?(\w+)\}?", key.strip())
    if named:
        return named.group(1)
    usual = PROVIDERS[provider].key_variables[0]
    variable = usual if keys.setdefault(usual, key) == key else f"STARLOOM_{role.value.upper()}_KEY"
    keys[variable] = key
    return variable
