"""`starloom demo`: the main job on real files, with two devices and one sentence.

A hub with its local device starts here; a second process joins it over a WebSocket. Each holds one branch's invoices in
a folder of its own. One request is planned, shown, run on both in parallel, joined, and leaves a spreadsheet, a summary
and an archive. Without the embedded model the same job runs from its recipe.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option
from starloom.errors import DeviceError, StarloomError, StoreError, UsageError

if TYPE_CHECKING:
    from starloom.cli.console import JsonView, RunView
    from starloom.hub.serve import Address
    from starloom.places import Places
    from starloom.session.galaxy import Galaxy
    from starloom.settings import Settings

REQUEST = (
    "Read all invoices in examples/invoices/north on the hub and examples/invoices/south on the branch, "
    "write the totals to totals.xlsx, write a summary to summary.md and make a zip archive invoices.zip of both files"
)
_JOIN_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 5.0
_MARK = ".starloom-demo"  # in the folder that the demo made, and so may make anew


@click.command()
@click.option("--recipe", "from_recipe", is_flag=True, help="Run from the recipe; do not fetch or use a model.")
@click.option(
    "--examples",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("examples/invoices"),
    show_default=True,
    help="The folder with the two branches' invoices and the recipe.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-workspace"),
    show_default=True,
    help="Where the two devices work; made anew.",
)
@json_option
def demo(from_recipe: bool, examples: Path, into: Path, as_json: bool) -> int:
    """Run the main job on the example invoices: two devices, one sentence, a spreadsheet at the end."""
    for needed in ("north", "south", "totals.yaml"):
        if not (examples / needed).exists():
            raise UsageError(
                f"{examples / needed} is not there. Run this in a checkout of Starloom, or give --examples."
            )
    _lay_out(examples, into)
    return asyncio.run(_demo(examples, into, from_recipe=from_recipe, as_json=as_json))


def _lay_out(examples: Path, into: Path) -> None:
    if into.exists() and any(into.iterdir()) and not (into / _MARK).exists():
        raise UsageError(f"{into} holds files that are not the demo's. Give an empty or a new folder with --into.")
    try:
        into.mkdir(parents=True, exist_ok=True)
        (into / _MARK).touch()
        for device, branch in (("hub", "north"), ("branch", "south")):
            shutil.rmtree(into / device, ignore_errors=True)
            shutil.copytree(examples / branch, into / device / "examples" / "invoices" / branch)
    except OSError as error:
        raise StoreError(
            f"Cannot lay out the example in {str(into)!r}: {error}. Give another folder with --into."
        ) from error


async def _demo(examples: Path, into: Path, *, from_recipe: bool, as_json: bool) -> int:
    from starloom.cli.console import JsonView, RunView
    from starloom.cli.driving import drive
    from starloom.constellation.documents import read_document
    from starloom.places import places
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file)
    view = JsonView() if as_json else RunView()
    reason = "you asked for it." if from_recipe else await asyncio.to_thread(_no_planner, place, as_json=as_json)
    async with _two_devices(place, settings, into, view) as galaxy:
        if reason:
            view.say(f"Running from the recipe, without a model: {reason}")
            recipe = read_document((examples / "totals.yaml").read_bytes(), where="totals.yaml")
            run_id = await galaxy.submit_recipe(recipe, {})
        else:
            run_id = await galaxy.submit_request(REQUEST)
        with view:
            code = await drive(galaxy, run_id, view, device_grace_s=settings.hub.device_grace_s)
    if code == 0 and isinstance(view, RunView):
        _show_results(view, into, run_id)
    return code


@asynccontextmanager
async def _two_devices(
    place: "Places", settings: "Settings", into: Path, view: "RunView | JsonView"
) -> "AsyncIterator[Galaxy]":
    """Run a hub with its local device, and a second device in another process that has joined it."""
    from starloom.hub.app import create_app
    from starloom.hub.guard import Guard
    from starloom.hub.serve import Address, bind, new_key, published, serving
    from starloom.session.build import device_ready, galaxy_here

    async with AsyncExitStack() as stack:
        listener = stack.enter_context(bind("127.0.0.1", 0))
        address = Address("127.0.0.1", listener.getsockname()[1], new_key())
        galaxy = await stack.enter_async_context(galaxy_here(place, settings, workspace=into / "hub"))
        stack.enter_context(published(address, place.hub_address))
        app = create_app(galaxy, Guard(address.key))
        await stack.enter_async_context(serving(app, listener, closing=galaxy.close))
        await stack.enter_async_context(_branch(address, into / "branch"))
        view.say(f"The hub listens on {address.http_url}; a second process joins it as device 'branch'.")
        try:
            await device_ready(galaxy.fleet, "branch", timeout_s=_JOIN_TIMEOUT_S)
        except DeviceError as error:
            raise DeviceError(f"{error.message} Its log is {into / 'branch.log'}.", **error.ids) from error
        yield galaxy


def _no_planner(place: "Places", *, as_json: bool) -> str:
    """Make sure that a model can plan; return why none can, or an empty string."""
    from importlib.util import find_spec

    from starloom.cli.model import install_weights, sources_of
    from starloom.llm.weight_install import is_installed
    from starloom.llm.weights import QWEN_CODER_1_5B

    if os.environ.get("STARLOOM_MODEL"):
        return ""
    if find_spec("xllamacpp") is None:
        return "the embedded model's engine is not installed (pip install 'starloom[local-model]')."
    if is_installed(QWEN_CODER_1_5B, place.cache / "models"):
        return ""
    try:
        install_weights(QWEN_CODER_1_5B, place.cache / "models", sources_of(), as_json=as_json)
    except StarloomError as error:
        if error.exit_code == 130:
            raise
        return error.message
    return ""


@asynccontextmanager
async def _branch(address: "Address", workspace: Path) -> AsyncIterator[None]:
    """Run the second device in a process of its own; its log is beside its folder."""
    environ = {**os.environ, "STARLOOM_HUB_URL": address.join_url}
    command = (
        sys.executable,
        "-m",
        "starloom",
        "join",
        "--name",
        "branch",
        "--no-shell",
        "--workspace",
        str(workspace),
    )
    with workspace.with_suffix(".log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:  # it is stopped or stuck
                process.kill()
                await process.wait()


def _show_results(view: "RunView", folder: Path, run_id: str) -> None:
    made = [path for name in ("totals.xlsx", "summary.md", "invoices.zip") for path in sorted(folder.glob(f"*/{name}"))]
    for path in made:
        if path.suffix == ".md":
            view.document("\n" + path.read_text(encoding="utf-8").strip())
    view.say("\n" + "\n".join(f"  {path}" for path in made))
    view.say("")
    program = os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "starloom"
    view.say("What to try next:")
    view.say(f"  {program} runs {run_id}    what happened, from the journal")
    view.say(
        f"  {program} run examples/invoices/totals.yaml --set branch=hub    the same from its recipe, without a model"
    )
    view.say(f"  {program} up    a hub that stays, with a page; then `starloom join` makes other machines its devices")
    view.say(f"  {program} doctor    what this machine can do")
