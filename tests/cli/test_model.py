"""`starloom model`: what is known, what is installed, what an unknown model can do."""

import json

from starloom.llm.scripted import Fault, ScriptedServer
from starloom.llm.weights import KNOWN_MODELS


def test_the_list_says_what_is_installed(home):
    rows = json.loads(home.run("model", "list", "--json").stdout)["models"]
    assert [(row["name"], row["installed"]) for row in rows] == [(spec.name, False) for spec in KNOWN_MODELS]


def test_an_unknown_model_cannot_be_installed(home):
    done = home.run("model", "install", "gpt-9")
    assert done.returncode == 2
    assert "starloom model list" in done.stderr


def test_a_file_that_is_not_the_model_is_refused_and_nothing_is_left(home):
    (home.work / "fake.gguf").write_bytes(b"GGUF")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    done = home.run("model", "install", "--file", "fake.gguf", "--json", **offline)
    assert done.returncode == 5
    assert "fake.gguf" in json.loads(done.stderr)["error"]["message"]
    assert not list((home.folder / "home" / "cache").rglob("*.gguf"))


def test_a_model_that_answers_nothing_usable_fails_its_test(home):
    with ScriptedServer(["I am a teapot."]) as server:
        done = home.run("model", "test", server.model_form, "--json")
    verdict = json.loads(done.stdout)
    assert done.returncode == 5
    assert {finding["check"]: finding["works"] for finding in verdict["findings"]}["words"] is False


def test_a_wrong_key_is_one_line(home):
    with ScriptedServer([Fault(401)]) as server:
        done = home.run("model", "test", server.model_form)
    assert done.returncode == 5
    assert "key" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_a_model_it_says_how_to_name_one(home):
    done = home.run("model", "test")
    assert done.returncode == 2
    assert "STARLOOM_MODEL" in done.stderr


def test_ufos_file_is_printed_as_settings_that_the_program_reads(home):
    agents = "HOST_AGENT: {API_TYPE: openai, API_KEY: sk-0123456789, API_MODEL: gpt-4o, USE_RESPONSES: true}\n"
    (home.work / "agents.yaml").write_text(agents)
    done = home.run("model", "import", "agents.yaml")
    assert done.returncode == 0, done.stderr
    assert "sk-0123456789" not in done.stdout
    assert "# The key of HOST_AGENT belongs in the variable OPENAI_API_KEY" in done.stdout
    (home.folder / "home" / "config").mkdir(parents=True)
    (home.folder / "home" / "config" / "settings.yaml").write_text(done.stdout)
    assert "no runs yet" in home.run("cost").stderr  # the settings were read
    assert home.run("model", "import", "agents.yaml", "--json").returncode == 0
