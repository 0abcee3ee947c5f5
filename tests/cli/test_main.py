"""Facts about the program as a whole: help, versions, exit codes, errors for people and for programs."""

import json

import pytest

from starloom import __version__
from starloom.cli.main import _COMMANDS


def test_help_names_every_command(home):
    done = home.run("--help")
    assert done.returncode == 0
    for name in _COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("command", list(_COMMANDS))
def test_every_command_has_help_of_its_own(home, command: str):
    done = home.run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: starloom {command}")


def test_the_version_is_the_packages(home):
    assert home.run("--version").stdout.split()[-1] == __version__


def test_an_unknown_command_is_wrong_use(home):
    done = home.run("rnu")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_errors_are_json_for_programs(home):
    done = home.run("runs", "run_nowhere", "--json")
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["kind"], error["exit_code"]) == (2, "UsageError", 2)


def test_no_runs_yet_is_not_a_failure(home):
    for form in ([], ["--json"]):
        done = home.run("runs", *form)
        assert done.returncode == 0
    assert json.loads(done.stdout) == {"runs": []}


def test_devices_without_a_hub_says_how_to_start_one(home):
    done = home.run("devices")
    assert done.returncode == 4
    assert "starloom up" in done.stderr


def test_the_doctor_says_what_is_missing_and_what_it_costs(home):
    done = home.run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0
    assert checks["embedded model"]["level"] == "missing"
    assert "starloom model install" in checks["embedded model"]["advice"]
    assert "GB" in checks["embedded model"]["advice"]
    assert home.run("doctor").returncode == 0
