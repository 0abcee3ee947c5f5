"""Facts about what the policy may take for the user's own word."""

from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.constellation.documents import build, normal_document
from starloom.safety.policy import Risk
from starloom.session.trust import mark_repeatable, words_of_graph, words_of_import

DOCUMENT = {
    "name": "n",
    "tasks": {
        "a": {
            "task_id": "a",
            "description": "",
            "task_data": {"tool": "files.read", "arguments": {"path": 'in "x".txt'}},
        },
        "b": {
            "task_id": "b",
            "description": "say hello",
            "task_data": {"tool": "files.write", "arguments": {"path": "o"}},
        },
    },
    "dependencies": {},
}
DEVICES = [
    DeviceProfile(
        "hub", "linux", (ToolProfile("files.read", "", {}, Risk.READ), ToolProfile("files.write", "", {}, Risk.WRITE))
    )
]


def test_every_literal_of_a_graph_is_a_line_as_it_was_written():
    lines = words_of_graph(build(DOCUMENT)).splitlines()
    assert {'in "x".txt', "o", "say hello"} <= set(lines)


def test_a_resumed_run_trusts_the_words_that_it_trusted_at_its_start():
    named = {"name": "shown as", "target_device_id": "far", "tips": ["be brief"]}
    graph = build({**DOCUMENT, "tasks": {**DOCUMENT["tasks"], "c": {"task_id": "c", "description": "", **named}}})
    recorded = {"command": "build_constellation", "document": normal_document(graph), "clear_existing": True}
    words = words_of_import([recorded]).split()
    assert words == words_of_graph(graph).split()
    assert not {"far", "shown", "a", "n"} & set(words)


def test_only_tasks_that_read_are_marked_repeatable():
    tasks = mark_repeatable(DOCUMENT, DEVICES)["tasks"]
    assert tasks["a"]["idempotent"] is True
    assert "idempotent" not in tasks["b"]
    assert "idempotent" not in DOCUMENT["tasks"]["a"]
