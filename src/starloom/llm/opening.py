"""From what the user chose to a model that answers: profile, key, connection.

Called by `session` (wiring) and `cli` (`model test`). The embedded model is opened here too; it plans through
`GrammarModel` and is no `Model`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from starloom.errors import ModelError, UsageError
from starloom.llm.completion import ProviderModel
from starloom.llm.embedded import EmbeddedModel, EmbeddedSettings
from starloom.llm.keys import find_key, read_keyring
from starloom.llm.openai_compatible import Connection
from starloom.llm.settings import EMBEDDED, ModelProfile
from starloom.llm.weight_install import is_installed
from starloom.llm.weights import KNOWN_MODELS, default_directory


def open_model(
    profile: ModelProfile,
    environ: Mapping[str, str],
    keyring_lookup: Callable[[str], str | None] = read_keyring,
) -> ProviderModel:
    """Return a model for the profile; it connects at its first request and must be closed.

    Raises:
        UsageError: the key is missing, no address is given, or the profile is the embedded model's.
    """
    if profile.provider == EMBEDDED:
        raise UsageError("The embedded model only plans with typed tools; this role needs another model.")
    return ProviderModel(Connection(profile, find_key(profile, environ, keyring_lookup)))


def open_embedded(profile: ModelProfile, folder: Path | None = None) -> EmbeddedModel:
    """Return the embedded model: the GGUF file that the profile names, else the installed weights; close it after use.

    Raises:
        ModelError: there are no weights; the message says how to get them.
    """
    settings = None
    if profile.context_tokens:
        settings = EmbeddedSettings(context_tokens=profile.context_tokens, prefixes=default_directory() / "prefixes")
    if profile.model:
        return EmbeddedModel(Path(profile.model).expanduser(), settings)
    weights = installed_weights(folder)
    if weights is None:
        raise ModelError("The local model is not installed. Get it with: starloom model install")
    return EmbeddedModel(weights, settings)


def installed_weights(folder: Path | None = None) -> Path | None:
    """Return the path of the first known weights that are installed; None when none are."""
    folder = folder or default_directory()
    return next((folder / spec.file_name for spec in KNOWN_MODELS if is_installed(spec, folder)), None)
