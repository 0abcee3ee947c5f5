"""The hub's routes about devices: who they are, who may come, who must go.

Added by `hub.app`, behind its check of the hub's key; a device's own token opens none of them.
"""

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field, StringConstraints

from starloom.errors import UsageError
from starloom.fleet.admission import ID_LIMIT
from starloom.fleet.credentials import CredentialStore
from starloom.hub.bodies import Body
from starloom.session.galaxy import Galaxy
from starloom.session.views import device_detail, device_row

_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class NewInvite(Body):
    """Whom to invite, and for how long. `device_id` null: the device names itself."""

    device_id: str | None = Field(default=None, min_length=1, max_length=ID_LIMIT, pattern=_PRINTABLE)
    valid_s: float = Field(default=600.0, gt=0, le=7 * 24 * 3600)


_Word = Annotated[str, StringConstraints(min_length=1, max_length=60, pattern=r"^[\w.-]+$")]


class NewName(Body):
    """What people call a device from now on; empty: its id."""

    display_name: str = Field(max_length=100, pattern=_PRINTABLE)


class NewGroups(Body):
    """The groups that a device is in from now on."""

    groups: list[_Word] = Field(max_length=50)


class Forgetting(Body):
    """Whether a device that is connected, or may still act, is put out first."""

    force: bool = False


def add_device_routes(app: FastAPI, galaxy: Galaxy) -> None:
    """Add the routes below `/api/devices`."""
    fleet = galaxy.fleet

    @app.get("/api/devices")
    async def devices(
        group: str | None = None, tag: str | None = None, tool: str | None = None, application: str | None = None
    ) -> dict[str, Any]:
        rows = [device_row(record) for record in fleet.records()]
        wanted = (("groups", group), ("tags", tag), ("tools", tool), ("applications", application))
        return {"devices": [row for row in rows if all(word is None or word in row[field] for field, word in wanted)]}

    @app.get("/api/devices/{device_id}")
    async def device(device_id: str) -> dict[str, Any]:
        record = fleet.get(device_id)
        detail = device_detail(record, _credentials(galaxy).credential_of(device_id))
        return {**detail, "held_s": fleet.held_s(device_id)}

    @app.post("/api/devices/{device_id}/ping")
    async def ping(device_id: str) -> dict[str, Any]:
        fleet.get(device_id)
        return {"device_id": device_id, "answered_s": await fleet.ping(device_id)}

    @app.post("/api/devices/{device_id}/rename")
    async def rename(device_id: str, body: NewName) -> dict[str, Any]:
        return device_row(fleet.describe(device_id, display_name=body.display_name))

    @app.post("/api/devices/{device_id}/groups")
    async def regroup(device_id: str, body: NewGroups) -> dict[str, Any]:
        return device_row(fleet.describe(device_id, groups=body.groups))

    _add_doors(app, galaxy)


def _add_doors(app: FastAPI, galaxy: Galaxy) -> None:
    """Add the routes that let devices in and put them out."""
    fleet = galaxy.fleet

    @app.post("/api/devices/invite", status_code=201)
    async def invite(body: NewInvite) -> dict[str, Any]:
        if body.device_id == galaxy.here:
            raise UsageError(f"{body.device_id!r} is the hub's own device. Invite the machine under another name.")
        made = _credentials(galaxy).invite(valid_s=body.valid_s, device_id=body.device_id)
        return {"token": made.token, "device_id": made.device_id, "expires_at": made.expires_at.isoformat()}

    @app.post("/api/devices/{device_id}/revoke")
    async def revoke(device_id: str) -> dict[str, Any]:
        if not _credentials(galaxy).revoke(device_id):
            fleet.get(device_id)
            if device_id == galaxy.here:
                raise UsageError(f"{device_id!r} is the hub's own device; it has no token.", device_id=device_id)
            raise UsageError(
                f"{device_id!r} has no credential of its own. A device that came with the hub's key leaves when "
                "`starloom up` is started with another key.",
                device_id=device_id,
            )
        await fleet.expel(device_id, "the credential was revoked")
        return {"device_id": device_id, "revoked": True}

    @app.post("/api/devices/{device_id}/forget")
    async def forget(device_id: str, body: Forgetting) -> dict[str, Any]:
        if device_id == galaxy.here:
            raise UsageError(f"{device_id!r} is the hub's own device and stays.", device_id=device_id)
        await fleet.forget(device_id, force=body.force)
        return {"device_id": device_id, "forgotten": True}

    @app.post("/api/devices/{device_id}/release")
    async def release(device_id: str) -> dict[str, Any]:
        held_s = fleet.held_s(device_id)
        fleet.release(device_id)
        return {"device_id": device_id, "released": True, "was_held_s": held_s}


def _credentials(galaxy: Galaxy) -> CredentialStore:
    store = galaxy.fleet.credentials
    if store is None:
        raise UsageError("This hub keeps no credentials of devices.")
    return store
