"""A corpus of reply shapes: each is read as exactly this, or refused for this reason; never a guess, never a crash."""

import itertools
import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, ConfigDict, Field

from starloom.llm.fitting import Fitted, read_reply
from starloom.llm.replies import Parsed, Unreadable, parse_reply


class Action(BaseModel):
    """A call."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Step(BaseModel):
    """One step of an agent."""

    model_config = ConfigDict(extra="forbid")

    thought: str = ""
    status: Literal["CONTINUE", "FINISH", "CONFIRM"]
    next_action: Action
    plan: list[str] = Field(default_factory=list)


VALUE = {
    "thought": "Press it",
    "status": "CONTINUE",
    "next_action": {"tool": "ui.click", "arguments": {"id": 5, "double": True}},
    "plan": ["press", "look"],
}
STEP = Step.model_validate(VALUE)
TEXT = json.dumps(VALUE)

# How the object itself may be written …
BODIES = {
    "strict": TEXT,
    "indented": json.dumps(VALUE, indent=2),
    "python": repr(VALUE),
    "trailing commas": json.dumps(VALUE, indent=1).replace("true\n", "true,\n").replace('"look"\n', '"look",\n'),
    "bare keys": TEXT.replace('"status"', "status").replace('"tool"', "tool"),
    "typographic quotes": TEXT.replace('"CONTINUE"', "“CONTINUE”").replace('"status"', "“status”"),
    "comments": TEXT.replace('"status"', '/* now */ "status"').replace("{", "{ // a step\n", 1),
    "full width": TEXT.replace(": 5", "：５").replace(", ", "， "),
    "camel case": TEXT.replace("next_action", "nextAction").replace("thought", "Thought"),
    "spaced keys": TEXT.replace("next_action", "Next Action"),
    "lower-case choice": TEXT.replace("CONTINUE", "continue"),
    "choice with debris": TEXT.replace("CONTINUE", "Continue()"),
    "encoded arguments": json.dumps(
        {**VALUE, "next_action": {"tool": "ui.click", "arguments": '{"id": 5, "double": true}'}}
    ),
    "encoded action": json.dumps({**VALUE, "next_action": json.dumps(VALUE["next_action"])}),
    "action in a list": json.dumps({**VALUE, "next_action": [VALUE["next_action"]]}),
    "same key twice": TEXT[:-1] + ', "status": "CONTINUE"}',
    "narration beside": TEXT[:-1] + ', "comment": "I am sure"}',
    "missing commas": json.dumps(VALUE, indent=1).replace('",\n "status"', '"\n "status"'),
}

# … and what may stand around it.
WRAPPERS = {
    "nothing": "BODY",
    "white space": "\n\n  BODY  \n",
    "byte order mark": "\ufeffBODY",
    "fence": "```json\nBODY\n```",
    "bare fence": "```\nBODY\n```",
    "tilde fence": "~~~json\nBODY\n~~~",
    "prose and fence": "Here is the step:\n```json\nBODY\n```\nTell me if it helps.",
    "prose": "Sure! The next step is BODY and then we look.",
    "language word": "json\nBODY",
    "think tags": '<think>maybe {"status": "FINISH"}?</think>\nBODY',
    "thinking tags": "<thinking>\nI could stop.\n</thinking>BODY",
    "bracket thinking": "[THINK]hm[/THINK]BODY",
    "thinking without a start": "so I press it.</think>\n\nBODY",
    "channels": "<|channel|>analysis<|message|>hm {}<|end|><|start|>assistant<|channel|>final<|message|>BODY<|return|>",
    "special tokens": "<|im_start|>assistant\nBODY<|im_end|>",
    "end of text": "BODY</s>",
    "answer tags": "<answer>BODY</answer>",
    "tool call tags": '<tool_call>{"name": "final_result", "arguments": BODY}</tool_call>',
    "function tag": "<function=final_result>BODY</function>",
    "tool calls mark": "[TOOL_CALLS] BODY",
    "openai envelope": '{"type": "function", "function": {"name": "final_result", "arguments": BODY}}',
    "envelope": '{"response": BODY}',
    "list of one": "[BODY]",
}


def wrapped(wrapper: str, body: str) -> str:
    return WRAPPERS[wrapper].replace("BODY", body)


@pytest.mark.parametrize(("wrapper", "body"), list(itertools.product(WRAPPERS, BODIES)))
def test_every_body_is_read_in_every_wrapper(wrapper: str, body: str) -> None:
    outcome = read_reply(wrapped(wrapper, BODIES[body]), Step, "stop")
    assert isinstance(outcome, Fitted), outcome
    assert outcome.value == STEP
    if (wrapper, body) not in itertools.product(("nothing", "white space"), ("strict", "indented")):
        assert outcome.repairs


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (TEXT, ()),
        (f"```json\n{TEXT}\n```", ("fence",)),
        (f"Well: {TEXT}", ("prose_around",)),
        (f"<think>x</think>{TEXT}", ("thinking",)),
        (f"{TEXT}\n{TEXT}", ("repeated_value",)),
        (json.dumps(TEXT), ("double_encoding",)),
        (f"<think>x {TEXT}", ("thinking", "prose_around")),
        (TEXT.replace("CONTINUE", "continue"), ("choice_spelling",)),
    ],
)
def test_repairs_are_named_in_order(text: str, repairs: tuple[str, ...]) -> None:
    outcome = read_reply(text, Step, "stop")
    assert isinstance(outcome, Fitted)
    assert outcome.value == STEP
    assert outcome.repairs == repairs


OTHER = TEXT.replace("ui.click", "ui.close")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("I cannot do that.", "no JSON object"),
        ("null", "no JSON object"),
        ("42", "no JSON object"),
        ("[]", "the reply: Input should"),
        ("see [1] and [2]", "no JSON object"),
        (f"{TEXT} or {OTHER}", "several different"),
        (f"```json\n{TEXT}\n```\n```json\n{OTHER}\n```", "several different"),
        (f"[{TEXT}, {OTHER}]", "Input should"),
        (TEXT.replace("Press it", 'Press "it" now'), "quote stands inside"),
        (TEXT.replace('"status": "CONTINUE"', '"status": "CONTINUE", "status": "FINISH"'), "two different values"),
        (TEXT.replace("CONTINUE", "RESTART"), "status"),
        (TEXT.replace('"status": "CONTINUE", ', ""), "status: Field required"),
        (json.dumps({"status": "FINISH"}), "next_action: Field required"),
        (TEXT.replace("tool", "instrument"), "tool: Field required"),
        (TEXT.replace("arguments", "args"), "args"),
        (TEXT.replace('"ui.click"', 'null, "x": 1'), "x"),
        (TEXT.replace('"plan": ["press", "look"]', '"plan": 3'), "plan"),
        (TEXT.replace('"plan"', '"target": "delete everything", "plan"'), "target"),
        ("{" * 5000, ""),
        ("<think>" + TEXT + "</think>", "empty"),
        ("<tool_call>" + TEXT + "</tool_call><tool_call>" + OTHER + "</tool_call>", "several different"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_reason(text: str, words: str) -> None:
    outcome = read_reply(text, Step, "stop")
    assert isinstance(outcome, Unreadable), outcome
    assert words in outcome.reason


TRUNCATED = [
    wrapped(wrapper, BODIES[body])
    for wrapper, body in [
        ("nothing", "strict"),
        ("nothing", "python"),
        ("fence", "strict"),
        ("prose and fence", "indented"),
        ("prose", "bare keys"),
        ("think tags", "strict"),
        ("tool call tags", "strict"),
        ("channels", "strict"),
        ("envelope", "comments"),
        ("list of one", "full width"),
    ]
]


@pytest.mark.parametrize("reply", TRUNCATED)
@pytest.mark.parametrize("finish", ["length", "unknown"])
def test_reply_cut_at_any_character_is_whole_or_refused(reply: str, finish: Literal["length", "unknown"]) -> None:
    for end in range(len(reply)):
        outcome = read_reply(reply[:end], Step, finish)
        if isinstance(outcome, Fitted):
            assert outcome.value == STEP, reply[:end]
            assert finish == "unknown" or reply[:end].strip() == TEXT


def test_reply_that_reached_its_limit_is_read_only_when_it_is_whole_as_it_is() -> None:
    assert isinstance(parse_reply(TEXT, "length"), Parsed)
    assert isinstance(parse_reply(f"{TEXT} and", "length"), Unreadable)


def test_thinking_without_an_end_is_read_only_when_the_model_stopped_by_itself() -> None:
    text = f"<think>I press it. {TEXT}"
    assert isinstance(parse_reply(text, "stop"), Parsed)
    assert isinstance(parse_reply(text, "unknown"), Unreadable)


def test_tags_inside_a_string_are_left_alone() -> None:
    text = '{"thought": "the <think> tag and ```fences```", "status": "FINISH", "next_action": {"tool": "t"},}'
    outcome = read_reply(text, Step)
    assert isinstance(outcome, Fitted)
    assert outcome.value.thought == "the <think> tag and ```fences```"


def test_two_objects_are_no_trouble_when_only_one_is_a_reply() -> None:
    outcome = read_reply(f'With {{"id": 5}} known: {TEXT}', Step)
    assert isinstance(outcome, Fitted)
    assert "several_values" in outcome.repairs


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=120), st.text(max_size=60))
def test_any_text_ends_in_a_reply_or_a_reason(before: str, after: str) -> None:
    for text in (before, before + TEXT + after, TEXT[: len(before)] + after):
        outcome = read_reply(text, Step)
        assert isinstance(outcome, Fitted | Unreadable)
        if isinstance(outcome, Unreadable):
            assert outcome.reason


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_reply_or_a_reason(content: bytes) -> None:
    assert isinstance(read_reply(content.decode("utf-8", "replace"), Step), Fitted | Unreadable)
