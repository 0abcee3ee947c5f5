"""What a user says about models: profiles, which role uses which, and the short form of `STARLOOM_MODEL`.

Nested in the one settings file by `session`; read by `llm.openai_compatible` and `cli`. A key itself is never in here,
only where to find it. Importing reads nothing.

    STARLOOM_MODEL =  embedded                        the local weights        embedded:/path/model.gguf
                      openai:gpt-5.2                  provider:model           deepseek:deepseek-chat
                      gpt-5.2                         a name that gives its provider away
                      http://127.0.0.1:8000/v1#qwen3  any OpenAI-compatible endpoint and the model's name there
"""

import re
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from starloom.errors import UsageError

EMBEDDED = "embedded"


class Role(StrEnum):
    """Who asks a model. A role without a profile of its own uses the default one."""

    HOST = "host"
    APP = "app"
    SHELL = "shell"
    WEB = "web"
    MOBILE = "mobile"
    OPERATOR = "operator"
    CONSTELLATION = "constellation"
    EVALUATION = "evaluation"
    BACKUP = "backup"


class OutputMode(StrEnum):
    """How a structured reply is asked for; `auto` begins with the best and steps down when it is refused."""

    AUTO = "auto"
    NATIVE = "native"
    TOOL = "tool"
    PROMPTED = "prompted"


class Price(BaseModel):
    """US dollars for a million tokens, as of a day; the user's word against any table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)  # None: as fresh ones
    cache_write: float | None = Field(default=None, ge=0)  # this and the next two, None: as the whole they are part of
    image_input: float | None = Field(default=None, ge=0)
    reasoning: float | None = Field(default=None, ge=0)
    as_of: date | None = None


class EntraIdentity(BaseModel):
    """Who asks Azure's models for us, instead of a key; see `llm.entra` for where its tokens come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant_id: str | None = None
    client_id: str | None = None
    secret_variable: str | None = None  # the environment variable that holds the application's secret
    federated_token_file: str | None = None
    login_url: str = "https://login.microsoftonline.com"
    scope: str = "https://cognitiveservices.azure.com/.default"
    managed_identity_url: str = "http://169.254.169.254/metadata/identity/oauth2/token"


class ModelProfile(BaseModel):
    """One model behind one endpoint. `None` means: as the provider has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    model: str
    base_url: str | None = None
    api_version: str | None = None  # Azure's dated API; none with an address that ends in /v1
    key_variable: str | None = None  # the environment variable that holds the key
    key_name: str | None = None  # the key's name in the system's keyring, under the service `starloom`
    entra: EntraIdentity | None = None  # Azure only: tokens in the place of a key
    headers: dict[str, str] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    ca_file: str | None = None
    proxy: str | None = None
    output_mode: OutputMode = OutputMode.AUTO
    sees_images: bool | None = None  # None: tried once, then remembered
    context_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=0.0, ge=0)
    timeout_s: float = Field(default=120.0, gt=0)  # for a whole reply
    stream: bool = True  # false: replies are always taken whole
    first_chunk_s: float | None = Field(default=None, gt=0)  # of a streamed reply; None: as long as for all of it
    chunk_gap_s: float = Field(default=60.0, gt=0)  # the longest silence within a streamed reply
    price: Price | None = None
    repair_turns: int = Field(default=2, ge=0, le=5)


class ModelSettings(BaseModel):
    """All profiles by name, and the roles that use them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profiles: dict[str, ModelProfile] = Field(default_factory=dict)
    roles: dict[Role, str] = Field(default_factory=dict)
    default: str | None = None  # a profile's name or a short form
    prices: dict[str, Price] = Field(default_factory=dict)  # by the model's name, for profiles without a price

    def profile_for(self, role: Role) -> ModelProfile:
        """Return the role's profile, else the default one.

        Raises:
            UsageError: neither is set, or it names no profile.
        """
        name = self.roles.get(role) or self.default
        if name is None:
            raise UsageError(
                "No model is chosen. Set STARLOOM_MODEL (such as openai:gpt-5.2, or http://127.0.0.1:8000/v1#name), "
                "or install the local one: starloom model install"
            )
        profile = self.profiles.get(name) or parse_model(name)
        price = profile.price or self.prices.get(profile.model)
        return profile if price is profile.price else profile.model_copy(update={"price": price})


@dataclass(frozen=True, slots=True)
class Provider:
    """A family of endpoints: where it is and where its key is looked for.

    `kind` is its wire; most speak OpenAI's chat protocol. `base_url` None: the user must name one.
    """

    name: str
    kind: Literal["openai", "anthropic", "google", "azure", "bedrock", "embedded"]
    base_url: str | None = None
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    output_mode: OutputMode = OutputMode.NATIVE  # what `auto` begins with
    model_pattern: str | None = None  # model names that give the provider away


PROVIDERS: dict[str, Provider] = {
    item.name: item
    for item in (
        Provider(EMBEDDED, "embedded", needs_key=False),
        Provider(
            "openai", "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), model_pattern=r"(gpt-|o\d|chatgpt-)"
        ),
        Provider(
            "dashscope-intl",
            "openai",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            ("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
            output_mode=OutputMode.PROMPTED,
        ),
        Provider(
            "dashscope-cn",
            "openai",
            "https://dashscope.aliyuncs.com/compatible-mode/v1",
            ("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
            output_mode=OutputMode.PROMPTED,
        ),
        Provider(
            "deepseek",
            "openai",
            "https://api.deepseek.com/v1",
            ("DEEPSEEK_API_KEY",),
            output_mode=OutputMode.PROMPTED,
            model_pattern="deepseek",
        ),
        Provider("ollama", "openai", "http://127.0.0.1:11434/v1", ("OLLAMA_API_KEY",), needs_key=False),
        Provider("vllm", "openai", "http://127.0.0.1:8000/v1", ("VLLM_API_KEY",), needs_key=False),
        Provider("openrouter", "openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
        Provider(
            "groq", "openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), output_mode=OutputMode.PROMPTED
        ),
        Provider(
            "mistral", "openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), model_pattern="(mi|ma|code)stral"
        ),
        Provider(
            "gemini",
            "openai",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            model_pattern="gemini",
        ),
        Provider(
            "anthropic",
            "anthropic",
            "https://api.anthropic.com",
            ("ANTHROPIC_API_KEY",),
            output_mode=OutputMode.TOOL,
            model_pattern="claude",
        ),
        Provider("google", "google", "https://generativelanguage.googleapis.com", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
        Provider("azure", "azure", None, ("AZURE_OPENAI_API_KEY",)),
        Provider(
            "bedrock", "bedrock", None, ("AWS_BEARER_TOKEN_BEDROCK",), needs_key=False, output_mode=OutputMode.TOOL
        ),
        Provider("endpoint", "openai", None, ("STARLOOM_API_KEY", "OPENAI_API_KEY"), needs_key=False),
    )
}


def parse_model(text: str) -> ModelProfile:
    """Return the profile that a short form means.

    Raises:
        UsageError: it names no provider that we know, or the region must be chosen.
    """
    text = text.strip()
    if re.match(r"https?://", text):
        base_url, _, model = text.partition("#")
        if not model:
            raise UsageError(f"{text!r} says no model. Write the model's name after the address: {text}#NAME")
        return ModelProfile(provider="endpoint", model=model, base_url=base_url.rstrip("/"))
    if text == EMBEDDED:
        return ModelProfile(provider=EMBEDDED, model="")
    provider, colon, model = text.partition(":")
    if colon and provider in PROVIDERS and model:
        return ModelProfile(provider=provider, model=model)
    if provider in ("qwen", "dashscope", "alibaba") or re.match("qwen", text):
        raise UsageError(
            f"{text!r}: choose the region, dashscope-intl:{model or text} or dashscope-cn:{model or text}."
        )
    for item in PROVIDERS.values():
        if item.model_pattern and re.match(item.model_pattern, text):
            return ModelProfile(provider=item.name, model=text)
    close = get_close_matches(provider, PROVIDERS, n=1)
    hint = (
        f" Do you mean {close[0]}:{model or 'MODEL'}?"
        if close
        else f" Known providers: {', '.join(sorted(PROVIDERS))}."
    )
    raise UsageError(f"{text!r} is no model that Starloom knows. Write provider:model or an address with #model.{hint}")
