"""`starloom model list` and `starloom model use`: which models there are, which one does what, and choosing another."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from starloom.cli.options import json_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.llm.settings import ModelProfile, ModelSettings, Role

_CHECKS = {"words": "JSON", "native": "schema", "tool": "tools", "picture": "pictures", "streams": "streams"}


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that is named somewhere: where, as what, what it is used for, and what its last test found."""

    name: str
    profile: "ModelProfile"
    used_for: tuple[str, ...]
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """Return the choice for programs."""
        return {
            "name": self.name,
            "provider": self.profile.provider,
            "model": self.profile.model,
            "used_for": list(self.used_for),
            "verdict": self.verdict,
        }


@click.command("list")
@json_option
def list_models(as_json: bool) -> int:
    """List the models you have named, which of them does what, and the weights that can be embedded."""
    from starloom.llm.weight_install import is_installed
    from starloom.llm.weights import KNOWN_MODELS
    from starloom.places import places
    from starloom.session.models import chosen_models
    from starloom.settings import load_settings

    folder = places().cache / "models"
    rows = [
        {
            "name": spec.name,
            "installed": is_installed(spec, folder),
            "size_bytes": spec.size_bytes,
            "memory_bytes": spec.memory_bytes,
            "description": spec.description,
            "path": str(folder / spec.file_name),
        }
        for spec in KNOWN_MODELS
    ]
    choices = named_models(chosen_models(load_settings(places().settings_file).models, os.environ))
    if as_json:
        click.echo(json.dumps({"models": rows, "chosen": [choice.as_json() for choice in choices]}))
        return 0
    _show(choices)
    click.echo("Weights that can be embedded:")
    for row in rows:
        state = "installed" if row["installed"] else "not installed"
        click.echo(f"  {row['name']}  {state}  {int(str(row['size_bytes'])) / 1e9:.1f} GB  {row['description']}")
    return 0


@click.command("use")
@click.argument("name")
@click.option("--role", help="Only for this role; without it, for every role that has none of its own.")
@json_option
def use_model(name: str, role: str | None, as_json: bool) -> int:
    """Use model NAME from now on: a profile of the settings file, `embedded`, provider:model, or an address#model."""
    from starloom.cli.setting_edits import write_setting
    from starloom.llm.keys import find_key
    from starloom.llm.settings import Role
    from starloom.places import places
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file).models
    roles = {item.value: item for item in Role}
    if role is not None and role not in roles:
        raise UsageError(f"{role!r} is no role. Roles: {', '.join(roles)}.")
    chosen = roles[role] if role else None
    profile = _usable(name, settings, chosen)
    before = settings.roles.get(chosen) if chosen else settings.default
    path = ("models", "roles", chosen.value) if chosen else ("models", "default")
    write_setting(place.settings_file, path, name)
    notes = []
    if os.environ.get("STARLOOM_MODEL", "").strip():
        notes.append("STARLOOM_MODEL is set and comes before the settings file; unset it.")
    if profile.provider != "embedded":
        try:
            find_key(profile, os.environ)
        except UsageError as error:
            notes.append(error.message)
    if as_json:
        answer = {"setting": ".".join(path), "before": before, "now": name, "notes": notes}
        click.echo(json.dumps(answer, ensure_ascii=False))
        return 0
    click.echo(f"{'.'.join(path)}: {before or '(not set)'} → {name}   in {place.settings_file}")
    others = [f"{item.value} ({used})" for item, used in settings.roles.items() if chosen is None]
    if others:
        click.echo(f"With models of their own: {', '.join(others)}.")
    for note in notes:
        click.echo(f"! {note}")
    if not notes and profile.provider != "embedded":
        click.echo(f"Verdict: {_verdict(profile)}")
    return 0


def _usable(name: str, settings: "ModelSettings", role: "Role | None") -> "ModelProfile":
    """Return the profile that a name means.

    Raises:
        UsageError: it means none, its weights are not installed, or the role needs another model.
    """
    from starloom.llm.opening import installed_weights
    from starloom.llm.settings import EMBEDDED, Role, parse_model
    from starloom.places import places

    profile = settings.profiles.get(name)
    if profile is None:
        try:
            profile = parse_model(name)
        except UsageError as error:
            known = f" Profiles of yours: {', '.join(settings.profiles)}." if settings.profiles else ""
            raise UsageError(f"{error.message}{known}") from error
    if profile.provider != EMBEDDED:
        return profile
    if role not in (None, Role.CONSTELLATION):
        raise UsageError(f"The embedded model only plans; the role {role.value if role else ''!r} needs another model.")
    if not profile.model and installed_weights(places().cache / "models") is None:
        raise UsageError("The local model is not installed. Get it with: starloom model install")
    return profile


def named_models(settings: "ModelSettings") -> list[Choice]:
    """Return every model that the settings name, profiles first."""
    from starloom.llm.settings import parse_model

    uses: dict[str, list[str]] = {name: [] for name in settings.profiles}
    if settings.default:
        uses.setdefault(settings.default, []).append("default")
    for role, name in settings.roles.items():
        uses.setdefault(name, []).append(role.value)
    found = []
    for name, used in uses.items():
        profile = settings.profiles.get(name) or parse_model(name)
        found.append(Choice(name, profile, tuple(used), _verdict(profile)))
    return found


def _verdict(profile: "ModelProfile") -> str:
    """Return what the last test of the profile's model found, in a few words."""
    from starloom.llm.probe import Verdicts
    from starloom.llm.settings import EMBEDDED, PROVIDERS
    from starloom.places import places

    if profile.provider == EMBEDDED:
        return "plans with typed tools"
    provider = PROVIDERS.get(profile.provider)
    address = (profile.base_url or (provider.base_url if provider else None) or "").rstrip("/")
    verdict = Verdicts(places().data / "model-verdicts.json").find(profile.model, address)
    if verdict is None:
        return "not tested"
    marks = {True: "✔", False: "✘", None: "?"}
    found = [f"{words} {marks[verdict.works(check)]}" for check, words in _CHECKS.items()]
    return f"{', '.join(found)} ({verdict.at.date()})"


def _show(choices: list[Choice]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not choices:
        click.echo("No model is chosen. Choose one with: starloom model use NAME")
        return
    table = Table("name", "provider", "model", "used for", "tested", box=None)
    table.columns[0].overflow = "fold"
    for choice in choices:
        profile = choice.profile
        table.add_row(choice.name, profile.provider, profile.model, ", ".join(choice.used_for) or "–", choice.verdict)
    Console(soft_wrap=True).print(table)
