"""What we must know about a device behind an upstream server, and how to read it from upstream's `devices.yaml`.

Source: upstream config/galaxy/devices.yaml; `max_retries` is not read there either, and here we try for ever (D11).
"""

import uuid
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
        UsageError: the file cannot be read, is not YAML, or an entry lacks what is needed.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The device list {str(path)!r} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"The device list {str(path)!r} is not YAML: {error}.") from error
    entries = content.get("devices") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"The device list {str(path)!r} has no list `devices`.")
    common = {"name": content["task_name"]} if isinstance(content.get("task_name"), str) else {}
    if isinstance(content.get("reconnect_delay"), int | float):
        common["reconnect_delay_s"] = content["reconnect_delay"]
    return tuple(_spec(path, number, entry, common) for number, entry in enumerate(entries, 1))


def _spec(path: Path, number: int, entry: object, common: dict[str, Any]) -> OutpostSpec:
    try:
        return OutpostSpec.model_validate({**common, **entry} if isinstance(entry, dict) else entry)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"Entry {number} of {str(path)!r} cannot be used: {where}: {first['msg']}.") from error
