"""What we must know about a device behind an upstream server, and how to read it from upstream's `devices.yaml`.

Source: upstream config/galaxy/devices.yaml; `max_retries` is not read there either, and here we try for ever (D11).
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starloom.constellation.parsing import parse, read_text
from starloom.constellation.problems import DocumentError
from starloom.errors import UsageError

_PLATFORMS = {"windows": "windows", "linux": "linux", "darwin": "linux", "macos": "linux", "mobile": "mobile"}
_PLATFORMS |= {"android": "mobile", "ios": "mobile"}
_TYPES = {"darwin": "macos", "mobile": "android"}


class OutpostSpec(BaseModel):
    """One device behind an upstream server.

    Attributes:
        server_url: `ws://host:port/ws?token=KEY`; upstream's servers read the token nowhere else.
        os: `windows`, `linux`, `macos`, `mobile` …
        name: our own name there; the registered id is `<name>@<device_id>`, so two hubs need two names.
        capabilities: what the operator says the device can do; shown as tags.
        auto_connect: dial it when the hub starts.
        token_variable: the environment variable with the server's token, so that it need not stand in the list.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    device_id: str = Field(min_length=1, max_length=128)
    server_url: str = Field(pattern=r"^wss?://", repr=False)
    os: str = "linux"
    name: str = Field(default_factory=lambda: f"starloom-{uuid.uuid4().hex[:8]}", min_length=1)
    capabilities: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)
    auto_connect: bool = True
    reconnect_delay_s: float = Field(default=5.0, gt=0)
    token_variable: str | None = Field(default=None, min_length=1)

    def token(self, environ: Mapping[str, str]) -> str | None:
        """Return the server's token; None when the entry names no variable, so it is in the address or not needed.

        Raises:
            UsageError: the variable is not set.
        """
        if self.token_variable is None:
            return None
        token = environ.get(self.token_variable, "").strip()
        if not token:
            raise UsageError(f"The token for {self.device_id!r} should be in {self.token_variable}, which is not set.")
        return token

    @property
    def platform(self) -> str:
        """Return upstream's word for the device's system."""
        return _PLATFORMS.get(self.os.lower(), "unknown")

    @property
    def device_type(self) -> str:
        """Return the exact kind of device."""
        return _TYPES.get(self.os.lower(), self.os.lower())


def read_devices_yaml(path: Path) -> tuple[OutpostSpec, ...]:
    """Return the devices in an upstream `devices.yaml`, in its order.

    Raises:
        UsageError: the file cannot be read, is too large or not YAML, or entries cannot be used; a line for each.
    """
    text, _ = read_text(path)
    try:
        content = parse(text, str(path), is_yaml=True)
    except DocumentError as error:
        raise UsageError(f"The device list {str(path)!r} is not YAML: {error.message}") from error
    entries = content.get("devices") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"The device list {str(path)!r} has no list `devices`.")
    common = {"name": content["task_name"]} if isinstance(content.get("task_name"), str) else {}
    if isinstance(content.get("reconnect_delay"), int | float):
        common["reconnect_delay_s"] = content["reconnect_delay"]
    found = [_spec(entry, common) for entry in entries]
    faults = [f"Entry {number}{item}" for number, item in enumerate(found, 1) if isinstance(item, str)]
    specs = [item for item in found if isinstance(item, OutpostSpec)]
    twice = [name for name, count in Counter(spec.device_id for spec in specs).items() if count > 1]
    faults += [f"The device {name!r} is there more than once." for name in twice]
    if faults:
        raise UsageError("\n  ".join([f"The device list {str(path)!r} cannot be used:", *faults]))
    return tuple(specs)


def _spec(entry: object, common: dict[str, Any]) -> OutpostSpec | str:
    """Return the entry as a specification, or what is wrong with it; no value of it, which may be secret."""
    if not isinstance(entry, dict):
        return ": it is no mapping of names to values."
    try:
        return OutpostSpec.model_validate({**common, **entry})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        name = f" ({entry['device_id']!r})" if isinstance(entry.get("device_id"), str) else ""
        hint = " It begins with ws:// or wss://." if first["type"] == "string_pattern_mismatch" else ""
        return f"{name}: {where}: {first['msg']}.{hint}"
