"""The screen that this process could use: asked for, not read from a variable. Called by `device.identity`.

A display named by the environment may be gone, or not ours. So the X server is asked in its own words (X Window System
Protocol, version 11, connection setup), which also tells the size; a Wayland compositor must take the connection.
"""

import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PATIENCE_S = 2.0
_COOKIE = b"MIT-MAGIC-COOKIE-1"
_SUCCESS = 1
_X_SOCKETS = Path("/tmp/.X11-unix")  # noqa: S108 - where X servers listen


@dataclass(frozen=True, slots=True)
class Display:
    """A screen. `kind`: x11, wayland, quartz or windows; the size in pixels, None where it is not told."""

    kind: str
    width: int | None = None
    height: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def display_of(
    system: str, environment: Mapping[str, str], home: Path, *, sockets: Path = _X_SOCKETS
) -> Display | None:
    """Return the screen that answers; None: there is none, or it does not take us.

    Args:
        system: `platform.system()` in small letters.
        environment: says where the display server listens.
        home: the user's own folder, for the key of the X server.
        sockets: where X servers of this machine listen.
    """
    if system == "windows":
        return _windows()
    if system == "darwin":
        return Display("quartz")
    wayland = environment.get("WAYLAND_DISPLAY")
    if wayland and _answers(Path(environment.get("XDG_RUNTIME_DIR", "/run/user")) / wayland):
        return Display("wayland")
    named = environment.get("DISPLAY")
    keys = Path(environment.get("XAUTHORITY") or home / ".Xauthority")
    return _x11(named, keys, sockets) if named else None


def _windows() -> Display | None:
    if sys.platform == "win32":
        import ctypes

        width, height = (int(ctypes.windll.user32.GetSystemMetrics(side)) for side in (0, 1))
        return Display("windows", width, height) if width and height else None
    return None


def _answers(path: Path) -> bool:
    try:
        _joined(path).close()
    except OSError:
        return False
    return True


def _joined(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(_PATIENCE_S)
    try:
        server.connect(str(path))
    except OSError:
        server.close()
        raise
    return server


def _x11(name: str, keys: Path, sockets: Path) -> Display | None:
    host, colon, rest = name.rpartition(":")
    number = rest.partition(".")[0]
    if not (colon and number.isascii() and number.isdigit()):
        return None
    try:
        with _dialled(host, int(number), sockets) as server:
            server.sendall(_greeting(_key(keys, number.encode())))
            head = _read(server, 8)
            size = _size_in(_read(server, 4 * struct.unpack_from("<H", head, 6)[0])) if head[0] == _SUCCESS else None
    except (OSError, struct.error, OverflowError):
        return None
    return Display("x11", *size) if size is not None else None


def _dialled(host: str, number: int, sockets: Path) -> socket.socket:
    if host in ("", "unix"):
        return _joined(sockets / f"X{number}")
    return socket.create_connection((host, 6000 + number), timeout=_PATIENCE_S)


def _greeting(key: bytes) -> bytes:
    """Return the setup request, little endian: protocol 11.0, the name of the kind of key, the key."""
    name = _COOKIE if key else b""
    return struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(key)) + _padded(name) + _padded(key)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _size_in(setup: bytes) -> tuple[int, int]:
    """Return width and height of the first screen in what the server tells of itself."""
    vendor_length, formats = struct.unpack_from("<H", setup, 16)[0], setup[21]
    screen = 32 + vendor_length + -vendor_length % 4 + 8 * formats
    width, height = struct.unpack_from("<HH", setup, screen + 20)
    return width, height


def _read(server: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = server.recv(size - len(data))
        if not part:
            raise ConnectionError("the X server hung up")
        data += part
    return bytes(data)


def _key(file: Path, number: bytes) -> bytes:
    """Return the key for a display from the user's file of keys; empty: there is none."""
    try:
        entries = list(_entries(file.read_bytes()))
    except (OSError, struct.error):
        return b""
    return next((key for shown, kind, key in entries if kind == _COOKIE and shown in (number, b"")), b"")


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield display number, kind and key of each entry: a family, then four counted texts, all big endian."""
    at = 0
    while at < len(data):
        at += 2
        texts = []
        for _ in range(4):
            (length,) = struct.unpack_from(">H", data, at)
            texts.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        yield texts[1], texts[2], texts[3]
