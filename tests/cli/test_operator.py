"""Facts about what a person at the hub and at a device sees, and what other users of their machines do not."""

import os
import sys
from pathlib import Path

import pytest
from tests.cli.test_devices import joined, linux_only, pasted, started_hub, stopped

from starloom.cli.hidden import without
from starloom.cli.service import unit_text


def command_line(program) -> str:
    return Path(f"/proc/{program.process.pid}/cmdline").read_text().replace("\0", " ")


@linux_only
def test_no_secret_stays_in_a_command_line(home):
    hub = home.start("up", "--port", "0", "--json", "--key", "the-hubs-own-key")
    hub.until(lambda line: '"join"' in line)
    assert "the-hubs-own-key" not in command_line(hub)
    line = pasted(home, "--name", "field")
    device = joined(home, *line)
    assert "sl1." not in command_line(device)
    assert "--name field" in command_line(device)
    stopped(device)


def test_a_secret_is_taken_out_of_the_words_of_a_command_line():
    assert without(["-m", "starloom", "join", "ws://h?token=t", "--name", "n"], "ws://h?token=t", None) == [
        *("-m", "starloom", "join", "--name", "n")
    ]
    assert without(["up", "--key", "k", "--json"], "k", "--key") == ["up", "--json"]
    assert without(["up", "--key=k"], "k", "--key") == ["up"]
    assert without(["up", "k"], "k", "--key") is None
    assert without(["join"], "ws://h?token=t", None) is None


def test_a_device_that_is_not_let_in_is_told_what_to_do(home):
    started_hub(home)
    line = pasted(home)
    address, _, token = line[1].partition("?token=")
    first = home.start(*line, "--name", "first")
    first.until(lambda text: "registered" in text)
    second = home.start("join", f"{address}?token={token}", "--name", "second", STARLOOM_HOME=str(home.folder / "two"))
    assert "starloom devices invite" in second.until(lambda text: "refused" in text)
    lost = home.start("join", address.removesuffix("/ws"), "--name", "third")
    said = lost.until(lambda text: "403" in text)
    assert "starloom devices invite" in said
    assert "/ws" in said
    same = home.start("join", f"{address}?token={token}", "--name", "first", STARLOOM_HOME=str(home.folder / "two"))
    assert "--name" in same.until(lambda text: "refused" in text)


@pytest.mark.parametrize("address", ["ws://", "ws://hub/ws#x", "ws://hub/ws?x=1", "ws://hub:99999/ws", "ws://[::1/ws"])
def test_no_line_is_printed_with_an_address_that_join_would_not_take(home, address):
    started_hub(home)
    done = home.run("devices", "invite", "--url", address)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_an_invitation_lasts_a_number_of_minutes(home):
    started_hub(home)
    done = home.run("devices", "invite", "--minutes", "nan")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@linux_only
@pytest.mark.parametrize("end", ["\\", " "])
def test_a_name_or_folder_that_ends_oddly_takes_no_other_line_with_it(end):
    text = unit_text(["join"], device_id=f"odd{end}", workspace=Path(f"/srv/odd{end}"), environ={})
    lines = text.splitlines()
    assert not [line for line in lines if line.endswith(("\\", " "))]
    [folder] = [line.partition("=")[2] for line in lines if line.startswith("WorkingDirectory=")]
    assert os.path.normpath(folder) == f"/srv/odd{end}"
    assert sys.executable in text
