"""Where one user's files are: data, settings, cache. Used by the composition root and the command line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import PlatformDirs


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one user: `data` holds the journal and the hub's address, `cache` what can be fetched again."""

    data: Path
    config: Path
    cache: Path

    @property
    def journal(self) -> Path:
        """The journal's database file."""
        return self.data / "journal.sqlite"

    @property
    def hub_address(self) -> Path:
        """Where a running hub leaves its URL and key for this user's other commands; readable by the user alone."""
        return self.data / "hub.json"

    @property
    def settings_file(self) -> Path:
        """The settings file; it need not exist."""
        return self.config / "settings.yaml"


def places(environ: Mapping[str, str] = os.environ) -> Places:
    """Return the user's folders: all below `STARLOOM_HOME` when that is set, else where the platform wants them."""
    home = environ.get("STARLOOM_HOME")
    if home:
        root = Path(home).expanduser()
        return Places(data=root / "data", config=root / "config", cache=root / "cache")
    dirs = PlatformDirs("starloom", appauthor=False)
    return Places(data=dirs.user_data_path, config=dirs.user_config_path, cache=dirs.user_cache_path)
