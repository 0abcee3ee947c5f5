"""What the fleet knows about a device, and the table of its states.

                     ┌────────────────────────────── it says goodbye or is lost ──────────────────────────┐
    disconnected ──▶ registering ── accepted ──▶ connected ── tools listed ──▶ idle ◀──▶ busy ────────────┤
         │  ▲             ▲                                                                               │
         ▼  └─────────────┼───────────────────────────────────────────────────────────────────────────────┘
    connecting ───────────┘        (we dial: an outpost)          any step of coming in may end in  failed

Read by the orchestrator's directory, the console and the hub; made by the fleet only.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from starloom.aip.messages import MCPToolInfo


class DeviceStatus(StrEnum):
    """Where a device stands."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    REGISTERING = "registering"
    CONNECTED = "connected"
    IDLE = "idle"
    BUSY = "busy"
    FAILED = "failed"

    @property
    def takes_work(self) -> bool:
        """Tell whether a task may be given to the device now or after its current one."""
        return self in (DeviceStatus.IDLE, DeviceStatus.BUSY)

    @property
    def is_online(self) -> bool:
        """Tell whether the device is registered on a live connection."""
        return self in (DeviceStatus.CONNECTED, DeviceStatus.IDLE, DeviceStatus.BUSY)


_S = DeviceStatus
TRANSITIONS: dict[DeviceStatus, frozenset[DeviceStatus]] = {
    _S.DISCONNECTED: frozenset({_S.CONNECTING, _S.REGISTERING, _S.FAILED}),
    _S.CONNECTING: frozenset({_S.REGISTERING, _S.DISCONNECTED, _S.FAILED}),
    _S.REGISTERING: frozenset({_S.CONNECTED, _S.DISCONNECTED, _S.FAILED}),
    _S.CONNECTED: frozenset({_S.IDLE, _S.BUSY, _S.DISCONNECTED}),
    _S.IDLE: frozenset({_S.BUSY, _S.DISCONNECTED}),
    _S.BUSY: frozenset({_S.IDLE, _S.DISCONNECTED}),
    _S.FAILED: frozenset({_S.CONNECTING, _S.REGISTERING, _S.DISCONNECTED}),
}


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device as it is known now.

    Attributes:
        platform: upstream's word: `windows`, `linux` or `mobile`; `unknown` when the device did not say.
        device_type: the exact kind: windows macos linux android ios web api.
        tools: what `list_tools` answered; empty until then.
        system_info: what the device told at registration.
        current_task: the name of the task whose command runs there now.
        capabilities: what was agreed on with it; empty for upstream's devices.
        max_in_flight: how many commands it takes at once.
        tags: words that the device says of itself; a hint, not to be trusted.
        display_name: what people call it; None: its id.
        groups: the groups that people put it into.
        outpost: True for a device behind an upstream server: it takes tasks, not commands.
        trouble: why we are not connected to an outpost; None: we are, or it dials us.
    """

    device_id: str
    platform: str
    device_type: str
    status: DeviceStatus
    tools: tuple[MCPToolInfo, ...] = ()
    system_info: dict[str, Any] = field(default_factory=dict)
    connected_at: datetime | None = None
    last_seen: datetime | None = None
    current_task: str | None = None
    capabilities: frozenset[str] = frozenset()
    max_in_flight: int = 1
    tags: tuple[str, ...] = ()
    display_name: str | None = None
    groups: tuple[str, ...] = ()
    outpost: bool = False
    trouble: str | None = None

    @property
    def applications(self) -> tuple[str, ...]:
        """Return the names of the applications that the device found installed; empty when it did not say."""
        told = self._abilities().get("applications")
        return tuple(name for name in told if isinstance(name, str)) if isinstance(told, list) else ()

    @property
    def display(self) -> dict[str, Any] | None:
        """Return the screen that answered the device, `{"kind", "width", "height"}`; None: none, or it did not say."""
        told = self._abilities().get("display")
        return told if isinstance(told, dict) else None

    @property
    def limits(self) -> dict[str, int]:
        """Return what a process has there: `cpus`, `memory_bytes`, `disk_free_bytes` at the device's start."""
        told = self._abilities().get("limits")
        return {name: value for name, value in told.items() if type(value) is int} if isinstance(told, dict) else {}

    def _abilities(self) -> dict[str, Any]:
        """Return what a Starloom device tells beyond upstream's words; it is the device's to say, so it may be odd."""
        custom = self.system_info.get("custom_metadata")
        ours = custom.get("starloom") if isinstance(custom, dict) else None
        return ours if isinstance(ours, dict) else {}
