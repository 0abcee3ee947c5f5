"""From what the user chose to a model that answers: profile, key, connection.

Called by `session` (wiring) and `cli` (`model test`). The embedded model is opened here too; it plans through
`GrammarModel` and is no `Model`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from starloom.clock import Clock
from starloom.errors import ModelError, UsageError
from starloom.llm.completion import ProviderModel
from starloom.llm.embedded import EmbeddedModel, EmbeddedSettings
from starloom.llm.fallback import FallbackModel, FellBack
from starloom.llm.keys import find_key, read_keyring
from starloom.llm.openai_compatible import Connection
from starloom.llm.probe import Verdicts
from starloom.llm.settings import EMBEDDED, ModelProfile, ModelSettings, Role
from starloom.llm.tracing import tracing_of
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
    return ProviderModel(Connection(profile, find_key(profile, environ, keyring_lookup), tracing_of(environ)))


def open_role(
    settings: ModelSettings,
    role: Role,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    keyring_lookup: Callable[[str], str | None] = read_keyring,
    verdicts: Verdicts | None = None,
    told: Callable[[FellBack], None] = lambda _: None,
) -> ProviderModel | FallbackModel:
    """Return a role's model, with the backup role's behind it when one is set; must be closed.

    What the doctor found out about a model (`verdicts`) fills in what its profile leaves open.

    Raises:
        UsageError: no model is chosen, a key is missing, or the profile is the embedded model's.
    """
    chosen = [settings.profile_for(role)]
    if role is not Role.BACKUP and Role.BACKUP in settings.roles:
        chosen.append(settings.profile_for(Role.BACKUP))
    models = []
    for profile in chosen:
        model = open_model(profile, environ, keyring_lookup)
        verdict = verdicts.find(profile.model, model.base_url) if verdicts else None
        models.append(open_model(verdict.applied_to(profile), environ, keyring_lookup) if verdict else model)
    return models[0] if len(models) == 1 else FallbackModel(models, clock, told=told)


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
