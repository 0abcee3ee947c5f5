"""The settings file: what it says counts, what it leaves out keeps a hub's own defaults."""

import pytest

from starloom.errors import UsageError
from starloom.orchestrator.settings import InDoubt
from starloom.settings import Settings, load_settings


def test_a_file_that_says_something_about_runs_leaves_the_rest_as_a_hub_has_it(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("runs: {max_concurrent_tasks: 3}\n")
    runs = load_settings(file).runs
    assert runs.max_concurrent_tasks == 3
    assert (runs.in_doubt, runs.device_wait_s) == (InDoubt.ASK, None) == (Settings().runs.in_doubt, None)


def test_a_file_may_decide_what_follows_from_doubt(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("runs: {in_doubt: fail}\n")
    assert load_settings(file).runs.in_doubt is InDoubt.FAIL


@pytest.mark.parametrize("content", ["runs: {in_dout: fail}", "runs: [1]", "[1]", "runs: {in_doubt: perhaps}"])
def test_what_is_no_setting_is_refused(tmp_path, content):
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    with pytest.raises(UsageError):
        load_settings(file)
