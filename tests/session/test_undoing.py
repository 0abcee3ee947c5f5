"""What a run did and no device can take back is shown beside what can."""

import shutil

import pytest

from starloom.ids import RunId
from starloom.journal.events import AgentAction, TaskStarted
from starloom.places import places
from starloom.session.build import galaxy_here
from starloom.session.undoing import effects_of, undo_effects
from starloom.settings import Settings

RECIPE = {
    "name": "two files",
    "tasks": [
        {
            "task_id": "write",
            "target_device_id": "hub",
            "task_data": {"tool": "files.write", "arguments": {"path": "made/a.txt", "text": "one"}},
        },
        {
            "task_id": "look",
            "target_device_id": "hub",
            "task_data": {"tool": "files.list", "arguments": {"folder": "."}},
        },
    ],
}


@pytest.fixture
async def galaxy(tmp_path):
    (tmp_path / "work").mkdir()
    place = places({"STARLOOM_HOME": str(tmp_path / "home")})
    async with galaxy_here(place, Settings(), workspace=tmp_path / "work", environ={}) as galaxy:
        yield galaxy


def shown(devices):
    return [(row["kind"], row["path"], row["reversible"]) for device in devices for row in device.effects]


async def test_a_call_of_a_tool_that_keeps_no_record_is_shown_and_stays(galaxy, tmp_path):
    run_id = await galaxy.submit_recipe(RECIPE, {})
    await galaxy.wait(run_id)
    sent = AgentAction("task", "mail.send", {"to": "x"}, "allow", "success", "write", "hub")
    refused = AgentAction("task", "mail.send", {"to": "x"}, "deny", "skipped", "write", "hub")
    await galaxy.journal.append(run_id, [sent, refused])
    assert shown(await effects_of(galaxy, run_id)) == [
        ("folder", "made", True),
        ("created", "made/a.txt", True),
        ("call", "mail.send", False),
    ]
    [device] = await undo_effects(galaxy, run_id)
    assert [row["undone"] for row in device.effects] == [True, True, False]
    assert device.effects[-1]["note"] == "cannot be reversed: this tool keeps no record of what it changes"
    assert not (tmp_path / "work" / "made").exists()


async def test_a_record_that_the_device_no_longer_has_is_missed(galaxy, tmp_path):
    run_id = await galaxy.submit_recipe(RECIPE, {})
    await galaxy.wait(run_id)
    shutil.rmtree(tmp_path / "work" / ".starloom" / "effects")
    [device] = await effects_of(galaxy, run_id)
    assert [(row["path"], row["note"]) for row in device.effects] == [
        ("files.write", "cannot be reversed: the device has nothing on record of it any more")
    ]


async def test_what_was_done_on_a_device_that_is_away_is_not_known(galaxy):
    run_id = await galaxy.submit_recipe(RECIPE, {})
    await galaxy.wait(run_id)
    away = AgentAction("task", "files.write", {"path": "b"}, "allow", "success", "there", "away")
    await galaxy.journal.append(RunId(run_id), [TaskStarted("there", 1, f"{run_id}:there:1", "away"), away])
    device = (await effects_of(galaxy, run_id))[0]
    assert device.device_id == "away"
    assert device.problem
    assert [(row["path"], row["note"]) for row in device.effects] == [
        ("files.write", "not known: the device could not be asked")
    ]
