"""`starloom constellation`: graphs in files — validated, drawn, compared, converted. Nothing is run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option
from starloom.errors import StoreError, UsageError

if TYPE_CHECKING:
    from starloom.constellation.constellation import TaskConstellation


@click.group()
def constellation() -> None:
    """Validate, show, diff and convert graphs in files."""


@constellation.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check FILE: words, types, references, cycles. Exit code 2 and the place of the first fault when it is wrong."""
    graph = _load(file)
    if as_json:
        click.echo(json.dumps({"valid": True, "tasks": graph.task_count, "dependencies": graph.dependency_count}))
    else:
        click.echo(f"{file}: {graph.task_count} tasks, {graph.dependency_count} dependencies, no faults.")
    return 0


@constellation.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--mermaid", "form", flag_value="mermaid", help="Write Mermaid instead of drawing layers.")
@click.option("--svg", "form", flag_value="svg", help="Write SVG instead of drawing layers.")
@json_option
def show(file: Path, form: str | None, as_json: bool) -> int:
    """Draw FILE's layers in the terminal, or write Mermaid or SVG to standard output."""
    from starloom.constellation.drawing import layers, to_mermaid, to_svg
    from starloom.constellation.statistics import statistics

    graph = _load(file)
    if as_json:
        click.echo(json.dumps(statistics(graph), ensure_ascii=False))
    elif form == "mermaid":
        click.echo(to_mermaid(graph))
    elif form == "svg":
        click.echo(to_svg(graph))
    else:
        click.echo(layers(graph))
    return 0


@constellation.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@json_option
def diff(old: Path, new: Path, as_json: bool) -> int:
    """Compare OLD and NEW: tasks and lines added, removed, changed. Exit code 1 when they differ."""
    from starloom.constellation.diff import diff as compare

    difference = compare(_load(old), _load(new))
    lines = difference.lines()
    click.echo(
        json.dumps(difference.to_dict(), ensure_ascii=False) if as_json else "\n".join(lines) or "No difference."
    )
    return 1 if lines else 0


@constellation.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over TARGET.")
def convert(file: Path, target: Path, force: bool) -> int:
    """Read FILE in any dialect and write TARGET: upstream's JSON for .json, a recipe for .yaml."""
    from starloom.constellation.documents import save

    graph = _load(file)
    if target.suffix.lower() not in {".json", ".yaml", ".yml"}:
        raise UsageError(f"{target} should end in .json or .yaml: the ending says what to write.")
    if target.exists() and not force:
        raise UsageError(f"{target} is there already. Give --force to write over it.")
    try:
        save(graph, target)
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {error.strerror}.", path=str(target)) from error
    click.echo(f"{target} written.")
    return 0


def _load(file: Path) -> "TaskConstellation":
    from starloom.constellation.documents import read_document
    from starloom.constellation.recipe import parse_recipe

    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", path=str(file)) from error
    try:
        recipe = parse_recipe(read_document(content, where=str(file)), where=str(file))
        return recipe.instantiate(recipe.bind({}))
    except UsageError as error:
        if str(file) in error.message:
            raise
        raise UsageError(f"{file}: {error.message}", path=str(file)) from error
