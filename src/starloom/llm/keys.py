"""Find a model's key: in the environment, else in the system's keyring. Never logged, never stored by us in a file.

Called by `llm.openai_compatible` and `cli` (`doctor`, `model use`). The keyring may ask a person or a bus, so look
there from a thread.
"""

from collections.abc import Callable, Mapping

from pydantic import SecretStr

from starloom.errors import UsageError
from starloom.llm.settings import PROVIDERS, EntraIdentity, ModelProfile

SERVICE = "starloom"


def read_keyring(name: str) -> str | None:
    """Return the secret of that name in the system's keyring; None when there is none, or no keyring."""
    import keyring
    from keyring.errors import KeyringError

    try:
        return keyring.get_password(SERVICE, name)
    except KeyringError:
        return None


def find_key(
    profile: ModelProfile, environ: Mapping[str, str], keyring_lookup: Callable[[str], str | None] = read_keyring
) -> SecretStr | None:
    """Return the profile's key; None when its endpoint can do without one.

    Raises:
        UsageError: the provider needs a key and none was found; the message says where it was looked for.
    """
    provider = PROVIDERS.get(profile.provider)
    if provider is None:
        raise UsageError(f"{profile.provider!r} is no provider. Known: {', '.join(sorted(PROVIDERS))}.")
    if profile.entra is not None:
        return _entra_secret(profile.entra, environ)
    variables = (profile.key_variable,) if profile.key_variable else provider.key_variables
    for variable in variables:
        if value := environ.get(variable, "").strip():
            return SecretStr(value)
    name = profile.key_name or (provider.name if provider.needs_key else None)
    if name and (value := (keyring_lookup(name) or "").strip()):
        return SecretStr(value)
    if not provider.needs_key:
        return None
    places = " or ".join(variables)
    raise UsageError(
        f"The model {profile.model!r} needs a key for {profile.provider}. Set {places}, or store it with: "
        f"keyring set {SERVICE} {provider.name}"
    )


def _entra_secret(identity: EntraIdentity, environ: Mapping[str, str]) -> SecretStr | None:
    if identity.secret_variable is None:
        return None
    secret = environ.get(identity.secret_variable, "").strip()
    if not secret:
        raise UsageError(f"The identity's secret is looked for in {identity.secret_variable}, which is not set.")
    return SecretStr(secret)
