"""The tokens that this machine has as a device: one file for each hub and name, which only its owner can read.

Called by `join`. A token came by invitation, or was given with `--service`; without it in the address, the next `join`
of the same name takes it from here.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from starloom.errors import StoreError
from starloom.safety.paths import folder_name

_INVITATION = "sl1.i."  # how `fleet.credentials` begins the token of an invitation


@dataclass(frozen=True, slots=True)
class KeptToken:
    """Where one device's token for one hub is kept, whether it is there or not."""

    path: Path
    address: str
    device_id: str

    def read(self) -> str | None:
        """Return the token; None when there is none.

        Raises:
            StoreError: the file is there and cannot be read.
        """
        try:
            token = json.loads(self.path.read_text(encoding="utf-8"))["token"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"The token in {str(self.path)!r} cannot be read: {error}.", path=str(self.path)
            ) from error
        return str(token)

    def write(self, token: str) -> None:
        """Keep the token in place of an older one, as a whole and readable by this user alone.

        Raises:
            StoreError: it cannot be written.
        """
        beside = self.path.with_suffix(".new")
        content = {"address": self.address, "device_id": self.device_id, "token": token}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.unlink(missing_ok=True)  # one that was left there may be open to others
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise StoreError(
                f"The token cannot be written to {str(self.path)!r}: {error.strerror}.", path=str(self.path)
            ) from error


def kept_token(folder: Path, address: str, device_id: str) -> KeptToken:
    """Return the place of a device's token in the data folder; `address` without a token."""
    digest = hashlib.sha256(f"{address}\n{device_id}".encode()).hexdigest()[:16]
    return KeptToken(folder / "tokens" / f"{folder_name(device_id)}-{digest}.json", address, device_id)


def parted(url: str) -> tuple[str, str | None]:
    """Return a hub's address without its token, and the token; None when it has none.

    Raises:
        ValueError: it is no address.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it names no host or no port")
    tokens = parse_qs(parts.query).get("token")
    query = "&".join(part for part in parts.query.split("&") if part and not part.startswith("token="))
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path, query, "")), tokens[0] if tokens else None


def in_order(given: str | None, kept: str | None) -> list[str | None]:
    """Return the tokens to try, one after the other when the hub refuses one.

    An invitation is newer than what is kept. The hub's key is not: it may not register a device that has a token of
    its own.
    """
    if given is None or kept is None or given == kept:
        return [given or kept]
    return [given, kept] if is_invitation(given) else [kept, given]


def is_invitation(token: str | None) -> bool:
    """Tell whether a token is an invitation, which turns into a device's own."""
    return token is not None and token.startswith(_INVITATION)


def is_bound(token: str | None) -> bool:
    """Tell whether a token is a device's own, not an invitation and not a hub's key."""
    return token is not None and token.startswith("sl1.c.")
