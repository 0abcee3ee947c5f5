"""Who may connect as what: credentials of single devices, and invitations that turn into them.

Used by the hub's listener (`check` before the handshake is accepted) and by the fleet (`redeem` at registration). A
token is `sl1.<kind>.<name>.<secret>`: the name finds the entry, of the secret only the SHA-256 is kept (256 random bits
need no slow hash), and it is compared in constant time. Remedies D14; the hub's one shared key is `Principal()`.

    invite() ──▶ open ── a device registers with it ──▶ redeemed by that device ── its credential is used ──▶ gone
                  └── its time is over ──▶ gone        (again by the same id while the credential was never used)
"""

import hashlib
import hmac
import json
import logging
import os
import secrets
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starloom.aip.messages import ClientType
from starloom.clock import Clock
from starloom.errors import StoreError
from starloom.fleet.principals import Principal

log = logging.getLogger(__name__)

PREFIX = "sl1"
TOKEN_LIMIT = 512
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credential:
    """One client's own token, without its secret."""

    name: str
    digest: str
    client_id: str
    client_type: str
    issued_at: str
    used_at: str | None = None
    invite: str | None = None


@dataclass(frozen=True, slots=True)
class OpenInvite:
    """An invitation that was not turned into a used credential yet."""

    name: str
    digest: str
    device_id: str | None
    expires_at: str
    redeemed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Invite:
    """What to hand over. `token` is shown this once; `device_id` None: the device names itself."""

    token: str = field(repr=False)
    device_id: str | None
    expires_at: datetime

    def line(self, url: str) -> str:
        """Return the one line to paste on the other machine."""
        name = f" --name {self.device_id}" if self.device_id is not None else ""
        return f"starloom join '{url}?token={self.token}'{name}"


class CredentialStore:
    """All credentials and open invitations, in memory and, with a path, in one file that only its owner can read.

    Args:
        clock: for validity, by wall time.
        path: the file; None: they last as long as the process.

    Raises:
        StoreError: the file is there and cannot be read.
    """

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        self._clock = clock
        self._path = path
        self._credentials: dict[str, Credential] = {}
        self._names: dict[str, str] = {}  # of the credential, by the client's id
        self._invites: dict[str, OpenInvite] = {}
        if path is not None and path.exists():
            self._load(path)

    def issue(self, client_id: str, client_type: ClientType = ClientType.DEVICE, *, invite: str | None = None) -> str:
        """Make a credential bound to this id and role, in place of an older one, and return its token, this once."""
        self._drop(client_id)
        name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._clock.now().isoformat()
        self._credentials[name] = Credential(name, _digest(secret), client_id, client_type.value, now, invite=invite)
        self._names[client_id] = name
        self._save()
        return f"{PREFIX}.c.{name}.{secret}"

    def invite(self, *, valid_s: float = 600.0, device_id: str | None = None) -> Invite:
        """Make an invitation for one device, good for one use and a short time."""
        name, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        expires_at = self._clock.now() + timedelta(seconds=valid_s)
        self._invites[name] = OpenInvite(name, _digest(secret), device_id, expires_at.isoformat())
        self._save()
        return Invite(f"{PREFIX}.i.{name}.{secret}", device_id, expires_at)

    def check(self, token: str | None) -> Principal | None:
        """Return what a token allows; None for one that is wrong, revoked, used up or too old. Never raises."""
        kind, name, secret = _parts(token)
        if kind == "c":
            return self._check_credential(name, secret)
        self._expire()
        invite = self._invites.get(name) if kind == "i" else None
        right = hmac.compare_digest(_digest(secret).encode(), (invite.digest if invite else _NO_DIGEST).encode())
        if invite is None or not right:
            return None
        bound_to = invite.redeemed_by or invite.device_id
        return Principal(ClientType.DEVICE, bound_to, invite=name)

    def redeem(self, invite: str, device_id: str) -> str | None:
        """Turn an invitation into the device's own credential and return its token; None when it is used up.

        The same device may do it again while its credential was never used: the answer may have got lost. A name that
        has a credential already can only be taken by an invitation for that very name.
        """
        self._expire()
        found = self._invites.get(invite)
        if found is None or found.redeemed_by not in (None, device_id) or found.device_id not in (None, device_id):
            return None
        known = self.credential_of(device_id)
        if known is not None and known.invite != invite and found.device_id is None:
            return None
        self._invites[invite] = replace(found, redeemed_by=device_id)
        return self.issue(device_id, invite=invite)

    def revoke(self, client_id: str) -> bool:
        """Take a client's credential and the invitations for it away; False when there was neither.

        Its live connection is the caller's to close.
        """
        known = self._drop(client_id)
        for name, invite in list(self._invites.items()):
            if client_id in (invite.device_id, invite.redeemed_by):
                del self._invites[name]
                known = True
        self._save()
        return known

    def credential_of(self, client_id: str) -> Credential | None:
        """Return a client's credential, without its secret; None: it has none of its own."""
        name = self._names.get(client_id)
        return self._credentials[name] if name is not None else None

    def credentials(self) -> tuple[Credential, ...]:
        """Return all credentials, oldest first; none of them holds a secret."""
        return tuple(sorted(self._credentials.values(), key=lambda credential: credential.issued_at))

    def _check_credential(self, name: str, secret: str) -> Principal | None:
        found = self._credentials.get(name)
        right = hmac.compare_digest(_digest(secret).encode(), (found.digest if found else _NO_DIGEST).encode())
        if found is None or not right:
            return None
        if found.used_at is None:
            self._credentials[name] = replace(found, used_at=self._clock.now().isoformat())
            self._invites.pop(found.invite or "", None)
            try:
                self._save()
            except StoreError as error:  # the token is right all the same; at worst its own device may redeem again
                log.error("The first use of a token could not be kept. %s", error.message)
        return Principal(ClientType(found.client_type), found.client_id)

    def _drop(self, client_id: str) -> bool:
        name = self._names.pop(client_id, None)
        if name is not None:
            del self._credentials[name]
        return name is not None

    def _expire(self) -> None:
        now = self._clock.now()
        gone = [name for name, invite in self._invites.items() if datetime.fromisoformat(invite.expires_at) <= now]
        for name in gone:
            del self._invites[name]

    def _load(self, path: Path) -> None:
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            self._credentials = {entry["name"]: Credential(**entry) for entry in content["credentials"]}
            self._names = {known.client_id: known.name for known in self._credentials.values()}
            self._invites = {entry["name"]: OpenInvite(**entry) for entry in content["invites"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"The credentials in {str(path)!r} cannot be read: {error}.", path=str(path)) from error

    def _save(self) -> None:
        """Replace the file as a whole, so that a crash leaves the old or the new one."""
        if self._path is None:
            return
        content = {
            "version": 1,
            "credentials": [asdict(credential) for credential in self._credentials.values()],
            "invites": [asdict(invite) for invite in self._invites.values()],
        }
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise StoreError(
                f"The credentials cannot be written to {str(self._path)!r}: {error.strerror}.", path=str(self._path)
            ) from error


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _parts(token: str | None) -> tuple[str, str, str]:
    """Return kind, name and secret of a token; empty strings for anything else."""
    parts = (token or "")[: TOKEN_LIMIT + 1].split(".")
    if token is None or len(token) > TOKEN_LIMIT or len(parts) != 4 or parts[0] != PREFIX:
        return "", "", ""
    return parts[1], parts[2], parts[3]
