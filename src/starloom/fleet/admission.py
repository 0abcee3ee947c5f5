"""Who may come in: the rules for a REGISTER, decided from what is known; no waiting, no sending.

Called by the fleet for every registration. Source: wire specification, sections 5.1, 5.2, 5.4 and 12; D10, D14 and D27.
"""

from dataclasses import dataclass
from typing import Any, Final

from starloom.aip.extension import Offer
from starloom.aip.messages import ClientMessage, ClientType
from starloom.fleet.principals import Principal

ID_LIMIT = 256
UPSTREAM_PLATFORMS: Final = frozenset({"windows", "linux", "mobile"})
PLATFORMS: Final = UPSTREAM_PLATFORMS | {"macos", "android", "ios", "web", "api", "unknown"}
DEVICE_TYPES: Final = frozenset({"windows", "macos", "linux", "android", "ios", "web", "api"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client may not come in: a text for its log, and a stable code."""

    text: str
    code: str


@dataclass(frozen=True, slots=True)
class Profile:
    """What a device's REGISTER says about it."""

    platform: str
    device_type: str
    system_info: dict[str, Any]
    tags: tuple[str, ...]


def fault_of(
    message: ClientMessage, principal: Principal, *, device_is_online: bool, unscoped_allowed: bool
) -> Refusal | None:
    """Return why this REGISTER must be refused, or None.

    Args:
        message: with a client_id.
        principal: what the connection's token allows.
        device_is_online: whether the `target_id` names a connected device.
        unscoped_allowed: whether a constellation client may come without a target.
    """
    client_id = message.client_id or ""
    if len(client_id) > ID_LIMIT or not client_id.isprintable():
        return Refusal(f"client_id must be printable and at most {ID_LIMIT} characters", "bad_client_id")
    if not principal.may_register(message.client_type, client_id):
        return Refusal("This credential is not valid for this client_id and client_type", "credential")
    if not principal.certificate_fits(message.client_type, client_id):
        return _uncertified(principal.certified or frozenset(), client_id)
    if message.client_type is ClientType.DEVICE:
        platform = (message.metadata or {}).get("platform", "unknown")
        if platform not in PLATFORMS:
            return Refusal(f"Unknown platform {str(platform)[:40]!r}", "unknown_platform")
        return None
    if message.target_id is None:
        return None if unscoped_allowed else Refusal("Constellation clients must name a target_id", "unscoped")
    if not device_is_online:
        return Refusal(f"Target device '{message.target_id[:ID_LIMIT]}' is not connected", "not_connected")
    return None


def _uncertified(names: frozenset[str], client_id: str) -> Refusal:
    if not names:
        return Refusal("This server asks for a client certificate, and the connection showed none", "certificate")
    shown = ", ".join(sorted(name[:80] for name in names)[:3])
    return Refusal(f"The client certificate is for {shown!r}, not for {client_id[:80]!r}", "certificate")


def profile_of(message: ClientMessage, offer: Offer | None) -> Profile:
    """Return what a device's REGISTER says about it, with `unknown` and empty values where it is silent or odd."""
    metadata = message.metadata or {}
    platform = str(metadata.get("platform", "unknown"))
    told = metadata.get("system_info")
    system_info: dict[str, Any] = dict(told) if isinstance(told, dict) else {}
    tags = system_info.get("tags")
    return Profile(
        platform=platform,
        device_type=_device_type(platform, system_info, offer),
        system_info=system_info,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
    )


def _device_type(platform: str, system_info: dict[str, Any], offer: Offer | None) -> str:
    """Return the exact kind of device: its own word, else what its system says, else what the platform allows."""
    if offer is not None and offer.device_type in DEVICE_TYPES:
        return str(offer.device_type)
    system = str(system_info.get("platform", "")).lower()
    named = {"darwin": "macos"}.get(system, system)
    if named in DEVICE_TYPES:
        return named
    return {"mobile": "android", "unknown": "linux"}.get(platform, platform)
