"""Facts about letting devices in and putting them out, with every part a process of its own."""

import json
import re
import shlex
import signal
import stat
import sys
from pathlib import Path

import pytest
from tests.certificates import needs_openssl, self_signed, signed_by

from starloom.cli.kept_tokens import in_order, kept_token, parted
from starloom.cli.service import unit_path, unit_text
from starloom.errors import StoreError, UsageError

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


def started_hub(home, **settings):
    if settings:
        config = home.folder / "home" / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "settings.yaml").write_text(json.dumps({"hub": settings}))
    hub = home.start("up", "--port", "0", "--json")
    hub.until(lambda line: '"join"' in line)
    return hub


def devices(home, *words):
    done = home.run("devices", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def pasted(home, *words):
    """Return the words of the line that `invite` prints, without the program's name."""
    done = home.run("devices", "invite", *words)
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    program, *rest = shlex.split(line)
    assert program == "starloom"
    return rest


def joined(home, *words):
    device = home.start(*words, "--json")
    device.until(lambda line: '"registered"' in line)
    return device


def stopped(device):
    device.interrupt()
    device.finish()


def test_one_pasted_line_lets_a_device_in_and_the_address_alone_does_so_ever_after(home):
    hub = started_hub(home)
    line = pasted(home, "--name", "field")
    token = line[1].partition("?token=")[2]
    stopped(joined(home, *line))
    [kept] = (home.folder / "home" / "data" / "tokens").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert token not in kept.read_text()
    address = line[1].partition("?")[0]
    stopped(joined(home, "join", address, "--name", "field"))
    stopped(joined(home, *line))  # the invitation is used up; what is kept lets it in
    refused = home.start("join", f"{address}?token={token}", "--name", "other", "--json")
    refused.until(lambda line: "403" in line)
    assert token not in "".join(refused.lines)
    assert hub.process.poll() is None


def test_a_revoked_device_stays_out_until_it_is_invited_again(home):
    started_hub(home)
    line = pasted(home, "--name", "field")
    device = joined(home, *line)
    assert devices(home, "revoke", "field") == {"device_id": "field", "revoked": True}
    device.until(lambda line: "403" in line)
    stopped(device)
    assert devices(home, "show", "field")["status"] == "disconnected"
    stopped(joined(home, *pasted(home, "--name", "field")))
    assert home.run("devices", "revoke", "nobody").returncode == 3
    assert "own device" in home.run("devices", "revoke", "hub").stderr


def test_a_device_is_forgotten_and_a_lost_ones_place_released(home):
    started_hub(home)
    device = joined(home, *pasted(home, "--name", "field"))
    refused = home.run("devices", "forget", "field")
    assert (refused.returncode, "--force" in refused.stderr) == (3, True)
    device.kill()
    device.finish()
    released = home.run("devices", "release", "field", "--json")
    while released.returncode == 3:  # the hub may not have seen yet that the connection is gone
        assert "is connected" in released.stderr
        released = home.run("devices", "release", "field", "--json")
    assert json.loads(released.stdout)["released"] is True
    assert "free already" in home.run("devices", "release", "field").stdout
    assert devices(home, "forget", "field") == {"device_id": "field", "forgotten": True}
    assert [row["device_id"] for row in devices(home)["devices"]] == ["hub"]
    for words, code in ((("forget", "hub", "--force"), 2), (("forget", "field"), 3), (("release", "field"), 3)):
        assert home.run("devices", *words).returncode == code


@linux_only
def test_a_second_machine_gets_a_frozen_ones_place_only_when_that_has_stopped_and_the_first_cannot_come_back(home):
    fleet = {"heartbeat_s": 0.3, "lease_s": 3, "resume_window_s": 0.5, "probe_timeout_s": 0.3, "fresh_s": 0}
    config = home.folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(json.dumps({"fleet": fleet}))
    hub = home.start("up", "--port", "0", "--json")
    address = json.loads(hub.until(lambda line: '"join"' in line))["join"]
    first = joined(home, "join", address, "--name", "field")
    first.freeze()
    second = home.start("join", address, "--name", "field", "--json", STARLOOM_HOME=str(home.folder / "other"))
    second.until(lambda line: "may act for" in line)
    second.until(lambda line: '"registered"' in line)
    first.process.send_signal(signal.SIGCONT)
    first.until(lambda line: '"refused"' in line)
    assert devices(home, "show", "field")["status"] == "idle"


@linux_only
def test_a_hub_that_is_killed_and_starts_again_keeps_a_frozen_devices_place_for_as_long_as_it_was_promised(home):
    config = home.folder / "home" / "config"
    config.mkdir(parents=True)
    settings = config / "settings.yaml"
    settings.write_text(json.dumps({"fleet": {"heartbeat_s": 1, "lease_s": 600}}))
    hub = home.start("up", "--port", "0", "--json")
    first = joined(home, "join", json.loads(hub.until(lambda line: '"join"' in line))["join"], "--name", "field")
    first.freeze()
    hub.kill()
    hub.finish()
    settings.write_text(json.dumps({"fleet": {"heartbeat_s": 0.3, "lease_s": 1}}))
    again = home.start("up", "--port", "0", "--json")
    address = json.loads(again.until(lambda line: '"join"' in line))["join"]
    second = home.start("join", address, "--name", "field", "--json", STARLOOM_HOME=str(home.folder / "other"))
    refused = second.until(lambda line: "may act for" in line)
    assert int(re.search(r"may act for (\d+) s", refused)[1]) > 300
    first.process.send_signal(signal.SIGCONT)
    stopped(first)  # without a hub it cannot say goodbye; a person who saw it end may say so
    assert devices(home, "release", "field")["released"] is True
    second.until(lambda line: '"registered"' in line)


def test_devices_are_shown_renamed_grouped_and_pinged(home):
    started_hub(home)
    rows = devices(home)["devices"]
    assert [row["device_id"] for row in rows] == ["hub"]
    assert devices(home, "list") == devices(home)
    assert devices(home, "rename", "hub", "The big one")["display_name"] == "The big one"
    assert devices(home, "groups", "hub", "office", "fast")["groups"] == ["fast", "office"]
    assert len(devices(home, "list", "--group", "office")["devices"]) == 1
    assert devices(home, "list", "--group", "other")["devices"] == []
    assert devices(home, "ping", "hub")["answered_s"] >= 0
    for words, said in (
        ((), "The big one"),
        (("show", "hub"), "files.read"),
        (("ping", "hub"), "answered"),
        (("groups", "hub"), "fast, office"),
        (("groups", "hub", "--none"), "no group"),
        (("rename", "hub", ""), "hub"),
    ):
        done = home.run("devices", *words)
        assert done.returncode == 0
        assert said in done.stdout
    wrong = [(("show", "nobody"), 3), (("ping", "nobody"), 3), (("invite", "--name", "hub"), 2)]
    wrong += [(("groups", "hub", "a/b"), 2), (("groups", "hub", "a", "--none"), 2), (("rename", "hub", "a\nb"), 2)]
    for words, code in wrong:
        done = home.run("devices", *words)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)


def test_an_invitation_may_name_the_address_that_others_see(home):
    started_hub(home)
    line = pasted(home, "--url", "wss://hub.example/ws", "--name", "it's me")
    assert line[1].startswith("wss://hub.example/ws?token=sl1.i.")
    assert line[2:] == ["--name", "it's me"]
    assert home.run("devices", "invite", "--url", "http://hub.example").returncode == 2
    assert "this machine alone" in home.run("devices", "invite").stderr


@needs_openssl
def test_a_hub_with_a_certificate_speaks_tls_to_programs_and_devices(home):
    hub = self_signed(home.folder, "hub")
    certificate = hub.path
    started_hub(home, certificate=str(certificate), key_file=str(hub.key))
    assert [row["device_id"] for row in devices(home)["devices"]] == ["hub"]
    line = pasted(home, "--name", "field")
    assert line[1].startswith("wss://127.0.0.1:")
    untrusting = home.start(*line, "--json")
    untrusting.until(lambda line: "cannot be reached" in line)
    stopped(untrusting)
    joined(home, *line, "--ca-file", str(certificate))
    assert home.run("join", "ws://127.0.0.1:1/ws", "--ca-file", str(certificate)).returncode == 2


@needs_openssl
def test_a_hub_that_requires_certificates_lets_in_whom_they_name(home):
    hub, authority = self_signed(home.folder, "hub"), self_signed(home.folder, "authority")
    field = signed_by(authority, home.folder, "field")
    asks = {"client_authorities": str(authority.path), "client_certificates": "required"}
    started_hub(home, certificate=str(hub.path), key_file=str(hub.key), **asks)
    line = [*pasted(home, "--name", "field"), "--ca-file", str(hub.path)]
    without = home.start(*line, "--json")
    without.until(lambda line: "asks for a client certificate" in line)
    stopped(without)
    joined(home, *line, "--certificate", str(field.path), "--key-file", str(field.key))
    done = home.run("join", "wss://127.0.0.1:1/ws", "--key-file", str(field.key))
    assert (done.returncode, "none was given" in done.stderr) == (2, True)


def test_a_certificate_that_is_none_stops_the_hub_with_one_line(home):
    config = home.folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text("hub: {certificate: nowhere.pem}\n")
    done = home.run("up", "--port", "0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "nowhere.pem" in done.stderr


@linux_only
def test_a_service_is_written_with_no_secret_in_it_and_its_line_joins(home):
    started_hub(home)
    line = pasted(home, "--name", "field")
    done = home.run(*line, "--service", "--no-shell", "--highest", "write")
    assert done.returncode == 0, done.stderr
    unit = home.folder / ".config" / "systemd" / "user" / "starloom-field.service"
    text = unit.read_text()
    [kept] = (home.folder / "home" / "data" / "tokens").iterdir()
    secret = json.loads(kept.read_text())["token"]
    assert secret.startswith("sl1.c.")
    assert "sl1." not in text
    assert "enable --now starloom-field.service" in done.stdout
    assert "sl1." not in done.stdout
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    _, _, _, *words = shlex.split(command.removeprefix("ExecStart="))
    assert words[0] == "join"
    assert {"--no-shell", "write", str(home.work)} <= set(words)
    joined(home, *words)


@linux_only
def test_a_service_without_a_token_is_not_written(home):
    started_hub(home)
    address = pasted(home)[1].partition("?")[0]
    done = home.run("join", address, "--name", "field", "--service")
    assert done.returncode == 2
    assert "devices invite" in done.stderr
    assert not (home.folder / ".config").exists()


def test_a_token_file_belongs_to_one_hub_and_one_name(tmp_path: Path):
    first = kept_token(tmp_path, "ws://a:1/ws", "dev")
    others = [kept_token(tmp_path, "ws://b:1/ws", "dev"), kept_token(tmp_path, "ws://a:1/ws", "../dev")]
    assert first.read() is None
    first.write("one")
    first.write("two")
    assert first.read() == "two"
    assert [other.read() for other in others] == [None, None]
    assert all(other.path.parent == tmp_path / "tokens" for other in others)
    first.path.write_text("[]")
    with pytest.raises(StoreError, match="cannot be read"):
        first.read()


def test_the_token_that_is_likeliest_right_is_tried_first():
    assert in_order(None, None) == [None]
    assert in_order("sl1.i.new", "sl1.c.old") == ["sl1.i.new", "sl1.c.old"]
    assert in_order("the-hubs-key", "sl1.c.own") == ["sl1.c.own", "the-hubs-key"]
    assert in_order("same", "same") == ["same"]


def test_an_address_is_parted_from_its_token():
    assert parted("ws://Hub:5000/ws?token=a%20b") == ("ws://hub:5000/ws", "a b")
    assert parted("wss://hub/ws?x=1&token=t&y=2") == ("wss://hub/ws?x=1&y=2", "t")
    assert parted("ws://hub/ws") == ("ws://hub/ws", None)
    for wrong in ("ws://", "ws://[::1/ws", "ws://hub:99999/ws", "ws://hub:x/ws"):
        with pytest.raises(ValueError, match=r"\w"):
            parted(wrong)


@linux_only
def test_a_units_words_cannot_become_others(tmp_path: Path):
    text = unit_text(
        ["join", "ws://h/ws?a=%20", "--name", 'a "b" $HOME \\'],
        device_id="50% of it",
        workspace=tmp_path,
        environ={"STARLOOM_HOME": "/srv/my home"},
    )
    assert '"ws://h/ws?a=%%20" "--name" "a \\"b\\" $$HOME \\\\"' in text
    assert 'Environment="STARLOOM_HOME=/srv/my home"' in text
    assert 'Description="50%% of it", a device of Starloom' in text
    with pytest.raises(UsageError):
        unit_text(["join", "a\nExecStartPre=/bin/true"], device_id="d", workspace=tmp_path, environ={})


@linux_only
def test_a_units_name_is_plain_and_its_own(tmp_path: Path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert unit_path("field", environ) == tmp_path / "systemd" / "user" / "starloom-field.service"
    names = {unit_path(name, environ).name for name in ("a/b", "a b", "büro", "bürö")}
    assert len(names) == 4
    assert all("/" not in name and name.isascii() for name in names)
