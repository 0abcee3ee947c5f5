"""Which model does what: the one that pursues goals in words, and the planner, chosen when first needed.

Made by the composition root. Order of choice: `STARLOOM_MODEL`, the settings' profiles, the embedded weights when they
are installed, none. A hub without any model still runs recipes.
"""

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from starloom.agents.compact_planner import CompactPlanner
from starloom.agents.plans import Planner
from starloom.clock import Clock
from starloom.errors import ModelError
from starloom.ids import RunId
from starloom.llm.budgets import BudgetedGrammarModel, BudgetedModel
from starloom.llm.port import GrammarModel, Model
from starloom.llm.settings import EMBEDDED, ModelProfile, ModelSettings, Role
from starloom.places import Places
from starloom.safety.provenance import Fence
from starloom.session.spending import Spending

_NO_MODEL = (
    "No model is here to plan this. Get the embedded one with `starloom model install` (1.1 GB, free), "
    "set STARLOOM_MODEL to a model you have a key for, or run a recipe, which needs none."
)
_NO_ENGINE = "The embedded model's engine is not installed: pip install 'starloom[local-model]'."


def chosen_models(settings: ModelSettings, environ: Mapping[str, str]) -> ModelSettings:
    """Return the settings with `STARLOOM_MODEL`, when it is set, in place of every role's choice."""
    text = environ.get("STARLOOM_MODEL", "").strip()
    return settings.model_copy(update={"default": text, "roles": {}}) if text else settings


def chosen_profile(settings: ModelSettings, role: Role, environ: Mapping[str, str]) -> ModelProfile | None:
    """Return the profile for a role; None when the user chose nothing.

    Raises:
        UsageError: the choice names no model that we know.
    """
    chosen = chosen_models(settings, environ)
    return None if role not in chosen.roles and chosen.default is None else chosen.profile_for(role)


@dataclass(slots=True)
class Models:
    """The models of one hub. `model` pursues goals in words, `planning` plans; None when there is no such model."""

    place: Places
    embedded: ModelProfile
    model: Model | None
    planning: Model | None
    spending: Spending
    closing: AsyncExitStack
    _weights: GrammarModel | None = None

    async def planner(self, run_id: RunId) -> Planner:
        """Return the planner of a run, held to its budget; what it uses is journalled.

        Raises:
            ModelError: there is no model; the message says how to get one.
        """
        allowance = self.spending.of_planning(run_id)
        if self.planning is None:
            return CompactPlanner(BudgetedGrammarModel(self._opened_weights(), allowance))
        from starloom.agents.structured_planner import StructuredPlanner

        return StructuredPlanner(BudgetedModel(self.planning, allowance), fence=Fence.drawn().wrap)

    def _opened_weights(self) -> GrammarModel:
        if self._weights is not None:
            return self._weights
        from starloom.llm.opening import installed_weights, open_embedded

        folder = self.place.cache / "models"
        if not self.embedded.model and installed_weights(folder) is None:
            raise ModelError(_NO_MODEL)
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelError(_NO_ENGINE)
        model = open_embedded(self.embedded, folder)
        self.closing.push_async_callback(model.close)
        self._weights = model
        return model


@asynccontextmanager
async def opened_models(
    place: Places, settings: ModelSettings, environ: Mapping[str, str], clock: Clock, spending: Spending
) -> AsyncIterator[Models]:
    """Open the configured models, if any; close what was opened when the block is left.

    Raises:
        UsageError: the configuration names no model that we know, or its key is missing.
    """
    async with AsyncExitStack() as closing:
        planning = _opened(Role.CONSTELLATION, place, settings, environ, clock, closing)
        acting = planning
        if chosen_profile(settings, Role.SHELL, environ) != chosen_profile(settings, Role.CONSTELLATION, environ):
            acting = _opened(Role.SHELL, place, settings, environ, clock, closing)
        embedded = chosen_profile(settings, Role.CONSTELLATION, environ)
        if embedded is None or embedded.provider != EMBEDDED:
            embedded = ModelProfile(provider=EMBEDDED, model="")
        yield Models(place, embedded, acting, planning, spending, closing)


def _opened(
    role: Role,
    place: Places,
    settings: ModelSettings,
    environ: Mapping[str, str],
    clock: Clock,
    closing: AsyncExitStack,
) -> Model | None:
    """Return the role's model with its backup behind it; None when the role has none but the embedded one."""
    profile = chosen_profile(settings, role, environ)
    if profile is None or profile.provider == EMBEDDED:
        return None
    from starloom.llm.opening import open_role
    from starloom.llm.probe import Verdicts

    verdicts = Verdicts(place.data / "model-verdicts.json")
    model = open_role(chosen_models(settings, environ), role, environ, clock, verdicts=verdicts)
    closing.push_async_callback(model.close)
    return model
