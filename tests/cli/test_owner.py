"""What a device's owner permits, no hub can exceed."""

from pathlib import Path

import pytest

from starloom.cli.options import RISKS
from starloom.cli.owner import owned_tools
from starloom.errors import UsageError
from starloom.safety.policy import Risk
from starloom.tools.router import ToolCall, ToolStatus


def test_the_options_words_are_the_policys():
    assert list(Risk) == list(RISKS)


@pytest.mark.parametrize(("highest", "status"), [("read", ToolStatus.FAILURE), ("write", ToolStatus.SUCCESS)])
async def test_a_write_needs_the_owners_leave(tmp_path: Path, highest: str, status: ToolStatus):
    router = owned_tools(tmp_path, device_id="d", highest=highest, shell=True)
    outcome = await router.call(ToolCall("files.write", {"path": "a.txt", "text": "x"}))
    assert outcome.status is status
    assert (tmp_path / "a.txt").exists() is (status is ToolStatus.SUCCESS)


def test_a_workspace_that_is_no_folder_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="nowhere"):
        owned_tools(tmp_path / "nowhere", device_id="d", highest="read", shell=False)
