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


def test_use_sets_the_default_or_a_role_and_the_list_says_what_is_in_use(home):
    file = home.folder / "home" / "config" / "settings.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nmodels:\n  profiles:\n    work: {provider: endpoint, model: m, base_url: 'http://h/v1'}\n")
    done = home.run("model", "use", "work")
    assert done.returncode == 0, done.stderr
    assert "models.default: (not set) → work" in done.stdout
    done = home.run("model", "use", "deepseek:deepseek-chat", "--role", "shell", "--json", DEEPSEEK_API_KEY="k")
    answer = json.loads(done.stdout)
    assert (answer["setting"], answer["before"], answer["notes"]) == ("models.roles.shell", None, [])
    assert file.read_text().startswith("# mine\n")
    chosen = json.loads(home.run("model", "list", "--json").stdout)["chosen"]
    assert [(item["name"], item["used_for"], item["verdict"]) for item in chosen] == [
        ("work", ["default"], "not tested"),
        ("deepseek:deepseek-chat", ["shell"], "not tested"),
    ]
    assert "work" in home.run("model", "list").stdout


def test_use_refuses_what_is_no_model_and_says_what_else_is_missing(home):
    assert "Do you mean openai" in home.run("model", "use", "opnai:gpt-5").stderr
    assert "starloom model install" in home.run("model", "use", "embedded").stderr
    assert "no role" in home.run("model", "use", "openai:gpt-5", "--role", "cook").stderr
    assert "OPENAI_API_KEY" in home.run("model", "use", "openai:gpt-5").stdout
    assert "unset it" in home.run("model", "use", "ollama:qwen3", STARLOOM_MODEL="ollama:other").stdout


def test_a_tested_model_has_its_verdict_in_the_list(home):
    with ScriptedServer([{"colour": "red"}]) as server:
        home.run("model", "test", server.model_form)
        home.run("model", "use", server.model_form)
        (chosen,) = json.loads(home.run("model", "list", "--json").stdout)["chosen"]
    assert "pictures ✔" in chosen["verdict"]
