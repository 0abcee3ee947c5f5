"""Secrets out of the command line, which every user of a machine can read (`ps`).

Called by `join` and `up` first of all: a program whose command line holds a secret starts itself again without it, and
finds it in its environment, which its own user alone can read.
"""

import os
import sys
from collections.abc import Sequence


def out_of_sight(name: str, value: str | None, *, option: str | None = None) -> None:
    """Hold `value` in no command line, and in no environment that the programs we start are given.

    Args:
        name: the variable that the command reads it from, when its command line has it not.
        value: the secret; None: there is none.
        option: the option that it was given with; None: it was an argument.
    """
    shown = without(sys.orig_argv[1:], value, option) if value is not None else None
    if shown is not None and value is not None and os.name == "posix":  # elsewhere it would be another process
        os.execve(sys.executable, [sys.executable, *shown], {**os.environ, name: value})  # noqa: S606 - our own words
    os.environ.pop(name, None)


def without(words: Sequence[str], value: str, option: str | None) -> list[str] | None:
    """Return the words of a command line without a secret; None: it is not among them."""
    for form in [[value]] if option is None else [[option, value], [f"{option}={value}"]]:
        for start in range(len(words) - len(form) + 1):
            if list(words[start : start + len(form)]) == form:
                return [*words[:start], *words[start + len(form) :]]
    return None
