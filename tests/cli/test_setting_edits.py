"""One value of the settings file is changed and the rest stays as it was."""

from pathlib import Path

import pytest
import yaml

from starloom.cli.setting_edits import changed, write_setting
from starloom.errors import UsageError

DEFAULT = ("models", "default")
ROLE = ("models", "roles", "shell")


@pytest.mark.parametrize("path", [DEFAULT, ROLE], ids=lambda path: path[-1])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "hub: {port: 5001}\n",
        "hub:\n  port: 5001  # mine",
        "models:\n",
        "models: {}\n",
        "models: {default: old, roles: {shell: 'old'}}\nhub: {port: 1}\n",
        "models:\n  # which one\n  default: old  # the old one\n  roles:\n    shell: old\n    web: other\n",
        "models:\n    profiles:\n        work: {provider: openai, model: m}\n\nhub:\n    port: 1\n",
        "models:\n  default: |-\n    old\n",
        "models:\n  default:\n  roles:\n",
    ],
)
def test_only_the_value_changes(text: str, path: tuple[str, ...]) -> None:
    after = changed(text, path, "http://127.0.0.1:1/v1#a: b")
    there = yaml.safe_load(after)
    for key in path:
        there = there[key]
    assert there == "http://127.0.0.1:1/v1#a: b"
    assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in after.splitlines() if "#" in line and "http" not in line
    ] or "default: old  #" in text
    assert changed(after, path, "again") != after


def test_what_cannot_be_changed_safely_is_left_to_the_user() -> None:
    with pytest.raises(UsageError, match=r"models\.default"):
        changed("models: &m {default: a}\nother: *m\nx: [1\n ]\nmodels2: *m\n", DEFAULT, "b")


@pytest.mark.parametrize("text", ["a: [", "- a\n- b\n", "just words\n", "models: [a]\n", "? [a]\n: b\n"])
def test_a_file_that_is_no_settings_is_left_to_the_user(text: str) -> None:
    with pytest.raises(UsageError, match=r"models\.default"):
        changed(text, DEFAULT, "b")


def test_a_link_stays_a_link_and_a_private_file_stays_private(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "real.yaml", tmp_path / "settings.yaml"
    real.parent.mkdir()
    real.write_text("hub: {port: 1}  # mine\n", encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to(real)
    write_setting(link, DEFAULT, "b")
    assert link.is_symlink()
    assert yaml.safe_load(real.read_text(encoding="utf-8")) == {"hub": {"port": 1}, "models": {"default": "b"}}
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_text_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(UsageError, match=r"settings\.yaml"):
        write_setting(file, DEFAULT, "b")
    assert file.read_bytes() == b"a: \xff\n"
