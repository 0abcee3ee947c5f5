"""Options that several commands share, so that they read and mean the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Callback = TypeVar("Callback", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")

# The words of `safety.policy.Risk`, in order; written out so that `--help` need not import it (a test compares them).
RISKS = ("read", "undoable", "write", "external", "irreversible")


def highest_option(default: str) -> Callable[[Callback], Callback]:
    """Return the option that limits what a device's owner permits."""
    return click.option(
        "--highest",
        type=click.Choice(RISKS),
        default=default,
        show_default=True,
        help="The riskiest kind of tool that may be used here.",
    )


workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current folder",
    help="The folder that the local device may work in; nothing outside it is touched.",
)
