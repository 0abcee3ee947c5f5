"""A screen counts when its server answers. The X server's words are those of the protocol's own document."""

import contextlib
import socket
import struct
import threading

import pytest

from starloom.device.display import Display, display_of

COOKIE = bytes(range(16))


def setup(width=1920, height=1080, vendor=b"The X.Org Foundation", formats=3):
    """Return what a server that takes us in says of itself: one screen."""
    head = struct.pack(
        "<IIIIHHBBBBBBBBxxxx", 12101007, 0x200000, 0x1FFFFF, 256, len(vendor), 65535, 1, formats, *[0] * 6
    )
    screen = struct.pack(
        "<IIIIIHHHHHHIBBBB", 0x500, 0x20, 0xFFFFFF, 0, 0, width, height, 508, 285, 1, 1, 0x21, 0, 0, 24, 0
    )
    body = head + vendor + bytes(-len(vendor) % 4) + bytes(8 * formats) + screen
    return struct.pack("<BxHHH", 1, 11, 0, len(body) // 4) + body


def refusal(reason=b"No protocol specified\n"):
    body = reason + bytes(-len(reason) % 4)
    return struct.pack("<BBHHH", 0, len(reason), 11, 0, len(body) // 4) + body


def entry(number, key, kind=b"MIT-MAGIC-COOKIE-1", host=b"host"):
    texts = (host, number, kind, key)
    return struct.pack(">H", 256) + b"".join(struct.pack(">H", len(text)) + text for text in texts)


@contextlib.contextmanager
def server(path, answer, heard):
    """Be a display server for one client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve():
            client, _ = listener.accept()
            with client:
                client.settimeout(5)
                heard.append(client.recv(4096))
                for at in range(0, len(answer), 7):  # in pieces, as a network may bring it
                    client.sendall(answer[at : at + 7])

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def asked(folder, answer, **environment):
    heard: list[bytes] = []
    with server(folder / "X7", answer, heard):
        found = display_of("linux", {"DISPLAY": ":7", **environment}, folder, sockets=folder)
    return found, heard[0]


@pytest.mark.parametrize("vendor", [b"", b"abc", b"Starloom"])
def test_a_server_that_takes_us_in_tells_its_size(tmp_path, vendor):
    found, greeting = asked(tmp_path, setup(vendor=vendor))
    assert found == Display("x11", 1920, 1080)
    assert greeting == b"l\0" + struct.pack("<HHHHH", 11, 0, 0, 0, 0)


def test_the_key_for_the_display_is_shown_to_the_server(tmp_path):
    entries = entry(b"8", bytes(16)) + entry(b"7", b"other", b"XDM-AUTHORIZATION-1") + entry(b"7", COOKIE)
    (tmp_path / ".Xauthority").write_bytes(entries)
    found, greeting = asked(tmp_path, setup())
    assert found is not None
    assert greeting[12:] == b"MIT-MAGIC-COOKIE-1\0\0" + COOKIE
    (tmp_path / "X7").unlink()
    (tmp_path / "elsewhere").write_bytes(entry(b"", COOKIE)[:-1])
    assert asked(tmp_path, setup(), XAUTHORITY=str(tmp_path / "elsewhere"))[1][12:].startswith(b"MIT-MAGIC-COOKIE-1")


@pytest.mark.parametrize(
    "answer", [refusal(), b"", setup()[:30], b"\x01\0\0\0\0\0\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
def test_a_server_that_does_not_take_us_in_is_no_screen(tmp_path, answer):
    assert asked(tmp_path, answer)[0] is None


@pytest.mark.parametrize(
    "name", ["", ":", ":x", "7", ":7", ":7.0", "unix:7", ":-1", "²:²", ":99999999999", "127.0.0.1:59000"]
)
def test_a_name_without_a_server_is_no_screen(tmp_path, name):
    assert display_of("linux", {"DISPLAY": name}, tmp_path, sockets=tmp_path) is None


def test_a_compositor_that_takes_the_connection_is_a_screen(tmp_path):
    environment = {"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert display_of("linux", environment, tmp_path) is None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "wayland-0"))
        listener.listen()
        assert display_of("linux", environment, tmp_path) == Display("wayland")


def test_a_mac_has_a_screen(tmp_path):
    assert display_of("darwin", {}, tmp_path) == Display("quartz")
