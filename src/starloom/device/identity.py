"""Who this device is and what it really has: probed from the machine, not declared.

Called once when a device starts. The words are upstream's, so that a constellation client of either kind can read them
(wire specification, section 5.1); a probe that fails leaves `unknown` or 0.
"""

import contextlib
import os
import platform
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starloom.device.applications import installed_applications
from starloom.device.display import Display, display_of

_BROWSERS = ("google-chrome", "chromium", "chromium-browser", "firefox", "msedge")
_OFFICES = ("soffice", "libreoffice", "winword", "excel")
_SYSTEMS = {"linux": "linux", "windows": "windows", "darwin": "macos"}
UNKNOWN = "unknown"
ABILITIES = "starloom"  # ours, in `custom_metadata`: applications, display and limits


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A device's name and description.

    Attributes:
        device_id: its name in the fleet.
        platform: upstream's word, `windows`, `linux` or `mobile`; selects the agent on an upstream server.
        device_type: the exact kind, `linux` `macos` `windows` `android` …
        system_info: what a constellation client is told about it.
    """

    device_id: str
    platform: str
    device_type: str
    system_info: dict[str, Any] = field(default_factory=dict)


def identity_of_this_machine(device_id: str | None = None) -> DeviceIdentity:
    """Return this machine's identity; named after the host unless told otherwise."""
    hostname = socket.gethostname() or UNKNOWN
    name = name_of_this_machine(device_id)
    system = platform.system().lower()
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never fails, unlike `Path.home`
    display = display_of(system, os.environ, home)
    abilities = {
        "applications": list(installed_applications(system, os.environ, home)),
        "display": display.to_json() if display is not None else None,
        "limits": _limits(home),
    }
    return DeviceIdentity(
        device_id=name,
        platform="windows" if system == "windows" else "linux",
        device_type=_SYSTEMS.get(system, "linux"),
        system_info={
            "device_id": name,
            "platform": system or UNKNOWN,
            "os_version": platform.version() or UNKNOWN,
            "cpu_count": os.cpu_count() or 0,
            "memory_total_gb": _memory_gb(),
            "hostname": hostname,
            "ip_address": _ip_address(),
            "supported_features": _features(system, display),
            "platform_type": "computer",
            "schema_version": "1.0",
            "custom_metadata": {ABILITIES: abilities},
        },
    )


def name_of_this_machine(device_id: str | None = None) -> str:
    """Return what this machine is called in a fleet: the host's name unless told otherwise."""
    return device_id or socket.gethostname() or UNKNOWN


def _memory_gb() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (ValueError, OSError, AttributeError):  # not on this system
        return 0.0


def _limits(home: Path, control_group: Path = Path("/sys/fs/cgroup")) -> dict[str, int]:
    """Return what a process has here: `cpus`, `memory_bytes` (a container's, where it has less), `disk_free_bytes`."""
    has_mask = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    limits = {"cpus": len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 0}
    memory = [int(_memory_gb() * 2**30)]
    with contextlib.suppress(OSError, ValueError):  # no such file: not in a container; "max": no limit of its own
        memory.append(int((control_group / "memory.max").read_text()))
    with contextlib.suppress(OSError):  # a home that is not there has no space either
        limits["disk_free_bytes"] = shutil.disk_usage(home).free
    return {**limits, "memory_bytes": min(filter(None, memory), default=0)}


def _ip_address() -> str:
    """Return the address that packets to elsewhere would leave from; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return UNKNOWN


def _features(system: str, display: Display | None) -> list[str]:
    """Return upstream's feature words for what is really here."""
    has_screen = display is not None
    found = [
        ("gui", has_screen),
        ("cli", True),
        ("browser", any(shutil.which(name) for name in _BROWSERS)),
        ("file_system", True),
        ("office", any(shutil.which(name) for name in _OFFICES)),
        (f"{_SYSTEMS.get(system, 'linux')}_apps", has_screen),
    ]
    return [feature for feature, here in found if here]
