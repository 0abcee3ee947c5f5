"""`starloom doctor`: what this machine has, what is missing, what each missing part costs and how to get it."""

import importlib.util
import json
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from starloom.cli.options import json_option
from starloom.errors import StarloomError


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `level`: ok, missing (optional), broken (must be mended before anything runs)."""

    name: str
    level: str
    found: str
    advice: str = ""


_MARKS = {"ok": "✔", "missing": "–", "broken": "✘"}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check the machine, the folders, the model and the ports. Exit code 1 when something must be mended."""
    checks = list(_checks())
    broken = any(check.level == "broken" for check in checks)
    if as_json:
        click.echo(json.dumps({"ok": not broken, "checks": [asdict(check) for check in checks]}, ensure_ascii=False))
    else:
        for check in checks:
            click.echo(f"{_MARKS[check.level]} {check.name}: {check.found}")
            if check.advice:
                click.echo(f"    {check.advice}")
    return 1 if broken else 0


def _checks() -> Iterator[Check]:
    yield _python()
    yield from _folders()
    yield from _extras()
    yield from _model()
    yield _port()
    yield _hub()


def _python() -> Check:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Check("machine", "ok", found)


def _folders() -> Iterator[Check]:
    from starloom.places import places
    from starloom.settings import load_settings

    place = places()
    for name, folder in (("data folder", place.data), ("cache folder", place.cache)):
        if _writable(folder):
            free = shutil.disk_usage(_existing(folder)).free
            yield Check(name, "ok", f"{folder} ({free / 1e9:.1f} GB free)")
        else:
            yield Check(name, "broken", f"{folder} cannot be written", "Set STARLOOM_HOME to a folder you may write.")
    try:
        load_settings(place.settings_file)
        known = place.settings_file.exists()
        yield Check(
            "settings", "ok", str(place.settings_file) if known else f"defaults ({place.settings_file} is not there)"
        )
    except StarloomError as error:
        yield Check(
            "settings", "broken", error.message, "Correct the file, or move it away to start from the defaults."
        )


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _writable(folder: Path) -> bool:
    nearest = _existing(folder)
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _extras() -> Iterator[Check]:
    for name, module, what, cost in (
        ("office extra", "openpyxl", "spreadsheets and PDFs", "2 MB: pip install 'starloom[office]'"),
        (
            "local-model extra",
            "xllamacpp",
            "the embedded planner's engine",
            "35 MB: pip install 'starloom[local-model]'",
        ),
    ):
        if importlib.util.find_spec(module):
            yield Check(name, "ok", what)
        else:
            yield Check(name, "missing", what, cost)


def _model() -> Iterator[Check]:
    from starloom.llm.settings import Role
    from starloom.llm.weight_install import is_installed
    from starloom.llm.weights import QWEN_CODER_1_5B
    from starloom.places import places
    from starloom.session.models import chosen_profile
    from starloom.settings import load_settings

    place = places()
    spec = QWEN_CODER_1_5B
    if is_installed(spec, place.cache / "models"):
        yield Check("embedded model", "ok", f"{spec.name}: {spec.description}")
    else:
        size, memory = spec.size_bytes / 1e9, spec.memory_bytes / 1e9
        advice = f"{size:.1f} GB to fetch, {memory:.1f} GB of memory while planning: starloom model install"
        yield Check("embedded model", "missing", spec.description, advice)
    try:
        profile = chosen_profile(load_settings(place.settings_file).models, Role.CONSTELLATION, os.environ)
    except StarloomError as error:
        yield Check("model", "broken", error.message, "Correct STARLOOM_MODEL or the settings file.")
        return
    if profile is None:
        advice = "For goals in words and free planning: STARLOOM_MODEL=provider:model, and its key in the environment."
        yield Check("model", "missing", "no provider is set", advice)
    else:
        yield Check("model", "ok", f"{profile.provider}: {profile.model} {profile.base_url or ''}".strip())


def _port() -> Check:
    from starloom.places import places
    from starloom.settings import load_settings

    try:
        hub = load_settings(places().settings_file).hub
    except StarloomError:
        return Check("port", "missing", "not checked: the settings cannot be read")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((hub.host, hub.port))
        except OSError as error:
            found = f"{hub.host}:{hub.port} cannot be used ({error.strerror})"
            return Check("port", "missing", found, "A hub may be running; else: starloom up --port 0")
    return Check("port", "ok", f"{hub.host}:{hub.port} is free")


def _hub() -> Check:
    from starloom.cli.hub_client import running_hub
    from starloom.places import places

    hub = running_hub(places().hub_address)
    if hub is None:
        return Check("hub", "missing", "none is running", "starloom up; without one, `starloom run` is its own hub.")
    devices = hub.get("/api/health")["online_clients"]
    return Check("hub", "ok", f"{hub.url} with {len(devices)} devices")
