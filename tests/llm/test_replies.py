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


ACTION, PLAN = json.dumps(VALUE["next_action"]), json.dumps(VALUE["plan"])
OTHER = TEXT.replace("ui.click", "ui.close")
CALL = json.dumps({"name": "final_result", "arguments": VALUE})
ARGUMENTS = {"thought": "Press it", "status": "CONTINUE", "next_action": ACTION, "plan": PLAN}


def elements(opening: str, closing: str, argument: str) -> str:
    """Write the call as elements; `argument` has NAME and TEXT in it."""
    inner = [argument.replace("NAME", name).replace("TEXT", text) for name, text in ARGUMENTS.items()]
    return "\n".join([opening, *inner, closing])


PARAMETER = '<parameter name="NAME">TEXT</parameter>'
PREFIXED = "antml" + ":"

# How vendors' models write a call, or their thinking, as text.
DIALECTS = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "hermes in python": f"<tool_call>\n{{'name': 'final_result', 'arguments': {VALUE!r}}}\n</tool_call>",
    "hermes without an end": f"<tool_call>\n{CALL}",
    "qwen agent": f"✿FUNCTION✿: final_result\n✿ARGS✿: {TEXT}",
    "qwen coder": elements(
        "<tool_call>\n<function=final_result>", "</function>\n</tool_call>", "<parameter=NAME>\nTEXT\n</parameter>"
    ),
    "glm": elements("<tool_call>final_result", "</tool_call>", "<arg_key>NAME</arg_key>\n<arg_value>TEXT</arg_value>"),
    "anthropic": elements('<function_calls>\n<invoke name="final_result">', "</invoke>\n</function_calls>", PARAMETER),
    "anthropic prefixed": elements(
        f'<{PREFIXED}invoke name="final_result">',
        f"</{PREFIXED}invoke>",
        f'<{PREFIXED}parameter name="NAME">TEXT</{PREFIXED}parameter>',
    ),
    "anthropic after words": "I press it.\n" + elements('<invoke name="final_result">', "</invoke>", PARAMETER),
    "anthropic after thinking": "<thinking>maybe <parameter=x></thinking>"
    + elements('<invoke name="final_result">', "</invoke>", PARAMETER),
    "minimax": elements(
        '<minimax:tool_call>\n<invoke name="final_result">', "</invoke>\n</minimax:tool_call>", PARAMETER
    ),
    "minimax json": f"<tool_calls>\n{CALL}\n</tool_calls>",
    "jamba": f"<tool_calls>[{CALL}]</tool_calls>",
    "hunyuan": f"<tool_calls>\n<tool_call>final_result\n```json\n{TEXT}\n```</tool_call>\n</tool_calls>",
    "nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "mistral list": f"[TOOL_CALLS] [{CALL}]",
    "mistral name": f"[TOOL_CALLS]final_result{TEXT}",
    "mistral arguments": f"[TOOL_CALLS]final_result[CALL_ID]abc123[ARGS]{TEXT}",
    "deepseek fence": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>final_result\n"
    f"```json\n{TEXT}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "deepseek bare": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>final_result<｜tool▁sep｜>{TEXT}<｜tool▁call▁end｜>",
    "llama": f'<|python_tag|>{{"name": "final_result", "parameters": {TEXT}}}<|eom_id|>',
    "llama function": f"<function=final_result>{TEXT}</function><|eom_id|>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.final_result:0<|tool_call_argument_begin|>"
    f"{TEXT}<|tool_call_end|><|tool_calls_section_end|>",
    "granite": f"<|tool_call|>[{CALL}]",
    "phi": f"functools[{CALL}]",
    "command": f'Action: ```json\n[{{"tool_name": "final_result", "parameters": {TEXT}}}]\n```',
    "internlm": f'<|action_start|><|plugin|>{{"name": "final_result", "parameters": {TEXT}}}<|action_end|>',
    "gemma": f"```tool_code\nfinal_result({TEXT})\n```",
    "react": f"Thought: I press.\nAction: final_result\nAction Input: {TEXT}",
    "openai message": json.dumps(
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "final_result", "arguments": TEXT}}]}
    ),
    "chat message": json.dumps({"role": "assistant", "content": TEXT}),
    "harmony call": f"<|start|>assistant<|channel|>analysis<|message|>{OTHER}<|end|><|start|>assistant"
    f"<|channel|>commentary to=functions.final_result <|constrain|>json<|message|>{TEXT}<|call|>",
    "harmony final": "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final <|constrain|>json"
    f"<|message|>{TEXT}<|return|>",
    "harmony preamble": f"<|channel|>commentary<|message|>I will {OTHER}<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{TEXT}",
    "nested thinking": f"<think>a <think>{OTHER}</think> c</think>{TEXT}",
    "thinking with an attribute": f'<think effort="high">{OTHER}</think>{TEXT}',
    "seed thinking": f"<seed:think>{OTHER}</seed:think>{TEXT}",
    "kimi thinking": f"◁think▷{OTHER}◁/think▷{TEXT}",
    "open thinking, then a fence": f"<think>hm\n```json\n{TEXT}\n```",
    "nested fences": f"````markdown\n```json\n{TEXT}\n```\n````",
    "fence with a title": f'```json title="step.json"\n{TEXT}\n```',
    "fence without an end": f"```json\n{TEXT}",
    "mark and carriage returns": "\ufeff" + json.dumps(VALUE, indent=1).replace("\n", "\r\n"),
    "schema, then the answer": json.dumps(Step.model_json_schema()) + "\n" + TEXT,
    "boxed": f"\\boxed{{{TEXT}}}",
    "assigned": f"const step = {TEXT};",
    "coloured": f"\x1b[32m{TEXT}\x1b[0m",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_read_and_cut_anywhere_it_is_whole_or_refused(dialect: str) -> None:
    text = DIALECTS[dialect]
    outcome = read_reply(text, Step, "stop")
    assert isinstance(outcome, Fitted), outcome
    assert outcome.value == STEP
    assert outcome.repairs
    for end in range(len(text)):
        cut = read_reply(text[:end], Step, "unknown")
        assert isinstance(cut, Unreadable) or cut.value == STEP, text[:end]


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
        ("{, " + TEXT[1:], "stands instead of a key"),
        ('{status is "CONTINUE", "next_action": ' + TEXT, "no JSON"),
        (f"<think>{OTHER} and then {TEXT}", "several different"),
        (f"analysis{OTHER}assistantfinal{TEXT}", "several different"),
        (f"{OTHER}\nWait, no. Correct:\n{TEXT}", "several different"),
        (f"Example: {OTHER}\nMy answer: {TEXT}", "several different"),
        (f"{TEXT}<|im_end|>\n<|im_start|>user\nthanks {OTHER}", "several different"),
        (f"<!-- {OTHER} -->{TEXT}", "several different"),
        (f"[TOOL_CALLS]final_result{TEXT}[TOOL_CALLS]final_result{OTHER}", "several different"),
        (DIALECTS["anthropic"] + DIALECTS["anthropic"], "several calls"),
        (DIALECTS["glm"].replace("plan</arg_key>", "status</arg_key>"), "stands twice"),
        (DIALECTS["glm"] + DIALECTS["glm"], "several calls"),
        (DIALECTS["qwen coder"].replace(PLAN, PLAN + PLAN), "more than one value"),
        (DIALECTS["qwen coder"].replace(PLAN, PLAN + " ["), "more than one value"),
        (DIALECTS["minimax"].replace("]</parameter>", "</parameter>"), "plan"),
        (DIALECTS["minimax"].replace('"status"', '"target"'), "status: Field required"),
        (TEXT[:-1], "too early"),
        (TEXT.replace('"look"', '"look", ...'), "stands instead of a value"),
        (TEXT.replace(', "status"', ',, "status"'), "stands instead of a key"),
        (TEXT.replace(", ", "; "), "quote stands inside"),
        (TEXT.replace(": 5", ": 0x5"), "stands instead of a value"),
        (TEXT.replace(": 5", ": 05"), "stands instead of a value"),
        (TEXT.replace('["press", "look"]', '("press", "look")'), "stands instead of a value"),
        (TEXT.replace('"Press it"', '"Press " + "it"'), "quote stands inside"),
        (TEXT.replace('"CONTINUE"', "CONTINUE"), "stands instead of a value"),
        (TEXT.replace('"', "&quot;"), "no JSON object"),
        ("thought: Press it\nstatus: CONTINUE\n", "no JSON object"),
        (TEXT.replace('"thought"', '"__proto__": {"x": 1}, "thought"'), "__proto__"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("[" * 100_000, "far too many"),
        ('["' * 50_000, "far too many"),
        ("[ {" * 20_000, "far too many"),
        ("word { word " * 30_000, "far too many"),
        ('{"a":1}' * 50_000, "far too many"),
        ("".join(f'{{"a":{number}}} ' for number in range(1_000)), "far too many"),
        ("`" * 390_000, "no JSON object"),
        ("<" * 390_000, "no JSON object"),
        ("<tool_call>" * 20_000, "no JSON object"),
        ("<think>" * 20_000, "empty"),
        ("<|channel|>analysis<|message|>" * 10_000, "empty"),
        ("x" * 10_000_000 + TEXT, "too long"),
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


@pytest.mark.parametrize("half", ["\\ud83d", "\ud83d"])
def test_half_a_character_is_replaced_so_that_it_can_be_stored(half: str) -> None:
    outcome = read_reply(TEXT.replace("Press it", f"Press {half} it"), Step, "stop")
    assert isinstance(outcome, Fitted)
    assert outcome.value.thought == "Press \ufffd it"


def test_a_value_that_is_nested_as_deep_as_the_parser_goes_does_not_exhaust_the_stack() -> None:
    for depth in (50, 90, 400, 900, 3000):
        nested = "[" * depth + "]" * depth
        outcome = read_reply(TEXT.replace('{"id": 5, "double": true}', f'{{"id": {nested}}}'), Step, "stop")
        assert isinstance(outcome, Fitted) == (depth < 98)


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
