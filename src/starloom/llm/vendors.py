"""Providers with a wire of their own: Anthropic, Google, Azure and Bedrock, over pydantic-ai's modules for them.

Called by `openai_compatible.Connection`, which asks and translates faults for all wires alike. A vendor's library is an
optional extra, imported when the first request is made; whether it is there is known when the connection is made.

    kind        extra        library        its address
    anthropic   anthropic    anthropic      https://api.anthropic.com
    google      google       google-genai   https://generativelanguage.googleapis.com
    azure       none         openai         https://NAME.openai.azure.com/openai/v1, or `api_version` too
    bedrock     bedrock      boto3          https://bedrock-runtime.REGION.amazonaws.com
"""

import importlib.util
import re
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from starloom.errors import UsageError
from starloom.llm.settings import ModelProfile

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

_LIBRARIES = {"anthropic": "anthropic", "google": "google.genai", "bedrock": "boto3"}


def check_extra(kind: str) -> None:
    """Return when the kind's library is installed.

    Raises:
        UsageError: it is not; the message names the extra.
    """
    library = _LIBRARIES.get(kind)
    if library is not None and not _is_installed(library):
        raise UsageError(f"The provider {kind!r} needs an extra: pip install 'starloom[{kind}]'.")


def errors_of(kind: str) -> tuple[type[Exception], ...]:
    """Return what a kind's library raises beside pydantic-ai's own errors; for a kind that was opened."""
    if kind != "bedrock":
        return ()
    from botocore.exceptions import BotoCoreError

    return (BotoCoreError,)


def opened_vendor(
    kind: str, profile: ModelProfile, base_url: str, key: SecretStr | None, http: "httpx2.AsyncClient"
) -> "Model[Any]":
    """Return the vendor's model over our HTTP client (Bedrock's library has one of its own).

    Raises:
        UsageError: the profile asks for what the vendor's wire has not.
    """
    secret = key.get_secret_value() if key else None
    if profile.extra_body and kind in ("google", "bedrock"):
        raise UsageError(f"The profile of {profile.model!r} has an `extra_body`; the wire of {kind!r} takes none.")
    match kind:
        case "anthropic":
            return _anthropic(profile, base_url, secret, http)
        case "google":
            return _google(profile, base_url, secret, http)
        case "azure":
            return _azure(profile, base_url, secret, http)
        case _:
            return _bedrock(profile, base_url, secret)


def _anthropic(profile: ModelProfile, base_url: str, secret: str | None, http: "httpx2.AsyncClient") -> "Model[Any]":
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=secret, base_url=base_url, http_client=http, max_retries=0)
    return AnthropicModel(profile.model, provider=AnthropicProvider(anthropic_client=client))


def _google(profile: ModelProfile, base_url: str, secret: str | None, http: "httpx2.AsyncClient") -> "Model[Any]":
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(api_key=secret or "none", base_url=base_url, http_client=http)
    return GoogleModel(profile.model, provider=provider)


def _azure(profile: ModelProfile, base_url: str, secret: str | None, http: "httpx2.AsyncClient") -> "Model[Any]":
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.azure import AzureProvider

    if profile.api_version is None and not base_url.endswith("/v1"):
        raise UsageError(
            f"The profile of {profile.model!r} needs an `api_version`, or a `base_url` that ends in /openai/v1."
        )
    provider = AzureProvider(
        azure_endpoint=base_url, api_version=profile.api_version, api_key=secret or "none", http_client=http
    )
    provider.client.max_retries = 0
    strict = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    return OpenAIChatModel(profile.model, provider=provider, profile=strict)


def _bedrock(profile: ModelProfile, base_url: str, secret: str | None) -> "Model[Any]":
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    found = re.search(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.", base_url)
    region = found.group(1) if found else None  # None: as the AWS library finds it
    read_s, connect_s = profile.timeout_s, min(10.0, profile.timeout_s)
    try:
        if secret is not None:
            provider = BedrockProvider(
                api_key=secret,
                base_url=base_url,
                region_name=region,
                aws_read_timeout=read_s,
                aws_connect_timeout=connect_s,
            )
        else:
            provider = BedrockProvider(
                base_url=base_url, region_name=region, aws_read_timeout=read_s, aws_connect_timeout=connect_s
            )
    except UserError as error:
        raise UsageError(
            f"The address {base_url!r} names no region: https://bedrock-runtime.REGION.amazonaws.com"
        ) from error
    return BedrockConverseModel(profile.model, provider=provider)


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False
