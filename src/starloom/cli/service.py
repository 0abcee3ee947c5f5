"""A systemd user unit that keeps this machine a device of a hub. Called by `join --service`.

The unit holds no secret: the token is in a file of its own (`kept_tokens`). It is written and never started from here.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from starloom.errors import StoreError, UsageError

_NOT_IN_UNIT_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_UNIT = """\
# Written by `starloom join --service`; writing it again replaces it.
[Unit]
Description="{name}", a device of Starloom

[Service]
ExecStart={command}
{environment}WorkingDirectory={folder}
Restart=always
RestartSec=5
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit_path(device_id: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a device's unit belongs.

    Raises:
        UsageError: this system is no Linux.
    """
    if sys.platform != "linux":
        raise UsageError("--service writes a unit for systemd, and this system has none. Join in the foreground.")
    config = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    name = _NOT_IN_UNIT_NAMES.sub("_", device_id)[:80]
    if name != device_id:
        name = f"{name}-{hashlib.sha256(device_id.encode()).hexdigest()[:8]}"
    return config / "systemd" / "user" / f"starloom-{name}.service"


def unit_text(
    arguments: Sequence[str], *, device_id: str, workspace: Path, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the unit that runs `starloom` with these arguments.

    Raises:
        UsageError: a word cannot be written into a unit.
    """
    home = environ.get("STARLOOM_HOME")
    named = f"STARLOOM_HOME={Path(home).expanduser().absolute()}" if home else None
    return _UNIT.format(
        name=_plain(device_id),
        command=" ".join(_word(word) for word in (sys.executable, "-m", "starloom", *arguments)),
        environment=f"Environment={_quoted(named)}\n" if named else "",
        folder=_plain(str(workspace)) + "/",  # systemd takes no blank and no backslash for the end of a line
    )


def write_unit(path: Path, text: str) -> None:
    """Write the unit.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"The unit {str(path)!r} cannot be written: {error.strerror}.", path=str(path)) from error


def _word(word: str) -> str:
    """Return a word of a command line: no variable of the environment is put in."""
    return _quoted(word).replace("$", "$$")


def _quoted(word: str) -> str:
    return '"' + _plain(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(word: str) -> str:
    """Return a value without systemd's own marks."""
    if not word.isprintable():
        raise UsageError(f"{word!r} cannot be written into a systemd unit.")
    return word.replace("%", "%%")
