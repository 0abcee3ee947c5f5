"""Which model does what: the one that pursues goals in words, and the planner, chosen when first needed.

Made by the composition root. Order of choice: `STARLOOM_MODEL`, the settings' profile, the embedded weights when they
are installed, none. A hub without any model still runs recipes.
"""

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starloom.agents.plans import Planner
from starloom.errors import ModelError
from starloom.llm.port import Model
from starloom.llm.settings import EMBEDDED, ModelProfile, ModelSettings, Role, parse_model
from starloom.llm.weight_install import is_installed
from starloom.llm.weights import QWEN_CODER_1_5B
from starloom.places import Places
from starloom.safety.provenance import Fence

_NO_MODEL = (
    "No model is here to plan this. Get the embedded one with `starloom model install` (1.1 GB, free), "
    "set STARLOOM_MODEL to a model you have a key for, or run a recipe, which needs none."
)


def chosen_profile(settings: ModelSettings, role: Role, environ: Mapping[str, str]) -> ModelProfile | None:
    """Return the profile for a role; None when the user chose nothing.

    Raises:
        UsageError: the choice names no model that we know.
    """
    text = environ.get("STARLOOM_MODEL", "").strip()
    if text:
        return parse_model(text)
    if role not in settings.roles and settings.default is None:
        return None
    return settings.profile_for(role)


def embedded_weights(place: Places, profile: ModelProfile | None = None) -> Path | None:
    """Return the embedded model's file: the profile's own, else the installed one; None when there is none."""
    if profile is not None and profile.model:
        return Path(profile.model).expanduser()
    folder = place.cache / "models"
    return folder / QWEN_CODER_1_5B.file_name if is_installed(QWEN_CODER_1_5B, folder) else None


class Models:
    """The models of one hub. `model` pursues goals in words; None when only the embedded one, or none, is there."""

    def __init__(
        self, place: Places, planning: ModelProfile | None, model: Model | None, closing: AsyncExitStack
    ) -> None:
        self._place = place
        self._planning = planning
        self._closing = closing
        self._planner: Planner | None = None
        self.model = model

    async def planner(self) -> Planner:
        """Return the planner.

        Raises:
            ModelError: there is no model; the message says how to get one.
        """
        if self._planner is None:
            self._planner = self._embedded() if self.model is None else self._structured(self.model)
        return self._planner

    def _structured(self, model: Model) -> Planner:
        from starloom.agents.structured_planner import StructuredPlanner

        return StructuredPlanner(model, fence=Fence.drawn().wrap)

    def _embedded(self) -> Planner:
        from starloom.agents.compact_planner import CompactPlanner
        from starloom.llm.embedded import EmbeddedModel

        weights = embedded_weights(self._place, self._planning)
        if weights is None:
            raise ModelError(_NO_MODEL)
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelError("The embedded model's engine is not installed: pip install 'starloom[local-model]'.")
        model = EmbeddedModel(weights)
        self._closing.push_async_callback(model.close)
        return CompactPlanner(model)


@asynccontextmanager
async def opened_models(place: Places, settings: ModelSettings, environ: Mapping[str, str]) -> AsyncIterator[Models]:
    """Open the configured model, if any; close what was opened when the block is left.

    Raises:
        UsageError: the configuration names no model that we know, or its key is missing.
    """
    planning = chosen_profile(settings, Role.CONSTELLATION, environ)
    async with AsyncExitStack() as closing:
        model: Model | None = None
        if planning is not None and planning.provider != EMBEDDED:
            from starloom.llm.completion import ProviderModel
            from starloom.llm.keys import find_key
            from starloom.llm.openai_compatible import Connection

            provided = ProviderModel(Connection(planning, find_key(planning, environ)))
            closing.push_async_callback(provided.close)
            model = provided
        yield Models(place, planning, model, closing)
