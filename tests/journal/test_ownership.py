import os
import signal
import subprocess
import sys

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.journal.ownership import holder_of, own
from starloom.journal.sqlite import SqliteJournal

HOLDER = """
import signal, sys
from pathlib import Path
from starloom.journal.ownership import own
own(Path(sys.argv[1]))
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_second_owner_is_refused_and_told_who_holds_it(tmp_path, holder):
    with pytest.raises(StoreError, match=f"in use by process {holder.pid}") as caught:
        own(tmp_path)
    assert caught.value.ids["pid"] == holder.pid


def test_killed_owner_leaves_nothing_behind(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    ownership = own(tmp_path)
    assert holder_of(tmp_path) == os.getpid()
    ownership.release()


def test_released_directory_can_be_owned_again(tmp_path):
    first = own(tmp_path / "new")
    with pytest.raises(StoreError, match="in use by process"):
        own(tmp_path / "new")
    first.release()
    first.release()
    own(tmp_path / "new").release()


def test_unreadable_lock_file_names_nobody(tmp_path):
    assert holder_of(tmp_path) is None
    (tmp_path / "owner.lock").write_text("[]")
    assert holder_of(tmp_path) is None


def test_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="Could not write to the data directory"):
        own(tmp_path / "file")


async def test_second_hub_on_the_same_data_is_refused(tmp_path, holder):
    with pytest.raises(StoreError, match=f"in use by process {holder.pid}"):
        await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    assert not (tmp_path / "journal.db").exists()


async def test_two_journals_in_one_process_are_two_owners(tmp_path):
    journal = await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    await journal.close()
    await (await SqliteJournal.open(tmp_path / "journal.db", ManualClock())).close()
