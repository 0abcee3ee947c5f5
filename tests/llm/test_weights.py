"""The table of known weights is consistent with itself."""

import pytest

from starloom.llm.weights import KNOWN_MODELS, ModelSpec, default_directory, known_model


@pytest.mark.parametrize("spec", KNOWN_MODELS, ids=lambda spec: spec.name)
def test_parts_add_up_to_the_file(spec: ModelSpec) -> None:
    assert sum(part.size_bytes for part in spec.parts) == spec.size_bytes
    assert len({part.sha256 for part in spec.parts}) == len(spec.parts)
    assert "Apache" in spec.licence


def test_known_model_is_found_by_name() -> None:
    assert known_model("qwen2.5-coder-1.5b-instruct") is KNOWN_MODELS[0]
    assert known_model("nothing") is None


def test_default_directory_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(default_directory()) == "/somewhere/starloom/models"
