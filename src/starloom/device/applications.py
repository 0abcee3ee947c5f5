"""The applications that are installed on this machine, as far as it lists them for people. Called by `device.identity`.

Linux     desktop entries (freedesktop.org, Desktop Entry Specification 1.5) whose program is really there
macOS     bundles in the folders of applications
Windows   short cuts of the start menu
"""

import configparser
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

MOST = 200
NAME_LIMIT = 80
_LARGEST_BYTES = 256 * 1024


def installed_applications(system: str, environment: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the names of the applications, sorted, each once, `MOST` at most; what cannot be read is left out.

    Args:
        system: `platform.system()` in small letters.
        environment: for the folders that it names.
        home: the user's own folder.
    """
    match system:
        case "linux":
            found = _desktop_entries(environment, home)
        case "darwin":
            found = _bundles((Path("/Applications"), Path("/System/Applications"), home / "Applications"))
        case "windows":
            found = _shortcuts([Path(environment[name]) for name in ("PROGRAMDATA", "APPDATA") if name in environment])
        case _:
            found = iter(())
    names = {" ".join(name.split())[:NAME_LIMIT] for name in found if name.isprintable()}
    return tuple(sorted(names - {""}, key=str.casefold)[:MOST])


def _desktop_entries(environment: Mapping[str, str], home: Path) -> Iterator[str]:
    """Yield the names of visible entries; the first folder that has an entry's file decides about it."""
    own = environment.get("XDG_DATA_HOME") or str(home / ".local/share")
    shared = environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    packaged = (
        str(home / ".local/share/flatpak/exports/share"),
        "/var/lib/flatpak/exports/share",
        "/var/lib/snapd/desktop",
    )
    seen: set[str] = set()
    for folder in (own, *shared.split(":"), *packaged):
        for file in _listed(Path(folder) / "applications", "*.desktop"):
            if file.name not in seen:
                seen.add(file.name)
                yield from _entry(file, environment)


def _entry(file: Path, environment: Mapping[str, str]) -> Iterator[str]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            return
        parser.read_string(file.read_text("utf-8"))
        entry = parser["Desktop Entry"]
        program = (shlex.split(entry.get("TryExec") or entry.get("Exec", "")) or [""])[0]
    except (OSError, ValueError, KeyError, configparser.Error):
        return
    hidden = any(entry.get(word, "false").strip().lower() == "true" for word in ("NoDisplay", "Hidden"))
    is_here = shutil.which(program, path=environment.get("PATH")) is not None
    if entry.get("Type", "Application") == "Application" and not hidden and is_here:
        yield entry.get("Name", "")


def _bundles(folders: tuple[Path, ...]) -> Iterator[str]:
    for folder in folders:
        for pattern in ("*.app", "*/*.app"):
            yield from (file.stem for file in _listed(folder, pattern))


def _shortcuts(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for file in _listed(folder / "Microsoft/Windows/Start Menu/Programs", "**/*.lnk"):
            if "uninstall" not in file.stem.lower():
                yield file.stem


def _listed(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
