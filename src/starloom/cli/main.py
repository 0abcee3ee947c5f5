"""The `starloom` program: the table of commands, and the one place where errors become a line and an exit code.

Exit codes: 0 done · 1 the run failed · 2 wrong use · 3 device · 4 connection · 5 model · 6 policy · 7 store ·
70 a bug of ours · 130 interrupted.
"""

import importlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import click

from starloom import __version__
from starloom.errors import StarloomError


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a command lives and its line in `--help`; the module is imported when the command is run."""

    target: str
    summary: str


_COMMANDS = {
    "run": _Entry("starloom.cli.run:run", "Run a request or a recipe on the devices at hand."),
    "resume": _Entry("starloom.cli.run:resume", "Take up a run that was interrupted."),
    "up": _Entry("starloom.cli.up:up", "Start the hub in the foreground: devices, HTTP API, page."),
    "join": _Entry("starloom.cli.join:join", "Make this machine a device of a hub."),
    "devices": _Entry("starloom.cli.devices:devices", "List the hub's devices; invite, ping, rename, revoke one."),
    "runs": _Entry("starloom.cli.runs:runs", "List the runs in the journal, show, prune, export, import them."),
    "cost": _Entry("starloom.cli.cost:cost", "Show what models used: tokens and money by run, role and model."),
    "replay": _Entry("starloom.cli.replay:replay", "Fold a run again without device or model; prove its end."),
    "fork": _Entry("starloom.cli.fork:fork", "Start a new run from a point in an old one."),
    "undo-effects": _Entry("starloom.cli.undo_effects:undo_effects", "Show what a run changed, and take it back."),
    "demo": _Entry("starloom.cli.demo:demo", "Run the main job on the example invoices with two devices."),
    "model": _Entry("starloom.cli.model:model", "Install and inspect the embedded planner model."),
    "doctor": _Entry("starloom.cli.doctor:doctor", "Check the machine, the model and the ports."),
    "mcp": _Entry("starloom.cli.mcp:mcp", "Serve a toolset over MCP on standard input and output."),
    "constellation": _Entry("starloom.cli.constellation:constellation", "Validate, show, diff and convert graphs."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: starloom demo. Then: starloom run 'what you want done'.",
)
@click.version_option(__version__, prog_name="starloom")
def cli() -> None:
    """One sentence becomes a graph of tasks, run by agents on many devices."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    try:
        result: Any = cli.main(args=words, prog_name="starloom", standalone_mode=False)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _complain(words, "Interrupted", "Interrupted.", 130)
    except click.ClickException as error:
        hint = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "starloom"
        return _complain(words, "UsageError", f"{error.format_message()} (see {hint} --help)", 2)
    except StarloomError as error:
        return _complain(words, type(error).__name__, error.message, error.exit_code, error.ids)
    except BrokenPipeError:
        # The reader of our output went away (`starloom runs | head`): nothing is left to say or to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the process's border: a bug is shown whole, and has an exit code of its own
        traceback.print_exc()
        return _complain(words, "Bug", "This is a bug in Starloom; please report it with the lines above.", 70)
    return result if isinstance(result, int) else 0


def _complain(
    words: list[str], kind: str, message: str, exit_code: int, ids: dict[str, str | int] | None = None
) -> int:
    if "--json" in words:
        error = {"kind": kind, "message": message, "exit_code": exit_code, **({"ids": ids} if ids else {})}
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
    else:
        click.echo(f"starloom: {message}", err=True)
    return exit_code
