"""Who this device is and what it really has: probed from the machine, not declared.

Called once when a device starts. The words are upstream's, so that a constellation client of either kind can read them
(wire specification, section 5.1); a probe that fails leaves `unknown` or 0.
"""

import os
import platform
import shutil
import socket
from dataclasses import dataclass, field
from typing import Any

_BROWSERS = ("google-chrome", "chromium", "chromium-browser", "firefox", "msedge")
_OFFICES = ("soffice", "libreoffice", "winword", "excel")
_SYSTEMS = {"linux": "linux", "windows": "windows", "darwin": "macos"}
UNKNOWN = "unknown"


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
    name = device_id or hostname
    system = platform.system().lower()
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
            "supported_features": _features(system),
            "platform_type": "computer",
            "schema_version": "1.0",
            "custom_metadata": {},
        },
    )


def _memory_gb() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (ValueError, OSError, AttributeError):  # not on this system
        return 0.0


def _ip_address() -> str:
    """Return the address that packets to elsewhere would leave from; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return UNKNOWN


def _features(system: str) -> list[str]:
    """Return upstream's feature words for what is really here."""
    has_screen = system in ("windows", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    found = [
        ("gui", has_screen),
        ("cli", True),
        ("browser", any(shutil.which(name) for name in _BROWSERS)),
        ("file_system", True),
        ("office", any(shutil.which(name) for name in _OFFICES)),
        (f"{_SYSTEMS.get(system, 'linux')}_apps", has_screen),
    ]
    return [feature for feature, here in found if here]
