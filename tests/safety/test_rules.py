import dataclasses
import json
from typing import cast

import pytest
from hypothesis import given, strategies as st

from starloom.safety.approvals import action_hash
from starloom.safety.policy import Decision, Facts, Risk
from starloom.safety.rules import at_least, is_named, judge, owner_limit, propose

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
REQUEST = "Read the invoices in examples/invoices/north, write the totals to totals.xlsx and zip them as out/all.zip."


def action(risk, *places, tool="files.write"):
    return propose("hub", tool, {"path": list(places)}, risk, ("path",))


@pytest.mark.parametrize(
    ("risk", "places", "decision", "rule"),
    [
        (None, ("totals.xlsx",), DENY, "unknown_tool"),
        (Risk.READ, (), ALLOW, "read_inside"),
        (Risk.READ, ("notes/keyboard.txt",), ALLOW, "read_inside"),
        (Risk.READ, ("notes/secret.txt",), ASK, "read_secret"),
        (Risk.READ, (".env",), ASK, "read_secret"),
        (Risk.READ, ("a/.SSH/config",), ASK, "read_secret"),
        (Risk.READ, ("server.pem",), ASK, "read_secret"),
        (Risk.READ, ("/etc/passwd",), ASK, "read_elsewhere"),
        (Risk.READ, ("../x",), ASK, "read_elsewhere"),
        (Risk.READ, ("http://169.254.169.254/latest",), ASK, "read_elsewhere"),
        (Risk.READ, ("{{ tasks.s1.result.path }}",), ASK, "read_elsewhere"),
        (Risk.WRITE, ("totals.xlsx",), ALLOW, "write_named"),
        (Risk.WRITE, ("./totals.xlsx", "out/all.zip"), ALLOW, "write_named"),
        (Risk.UNDOABLE, ("totals.xlsx",), ALLOW, "write_named"),
        (Risk.WRITE, ("totals.xlsx", "other.xlsx"), ASK, "write_unnamed"),
        (Risk.WRITE, (), ASK, "write_unnamed"),
        (Risk.WRITE, ("all.zip",), ASK, "write_unnamed"),
        (Risk.EXTERNAL, ("totals.xlsx",), ASK, "outward"),
        (Risk.IRREVERSIBLE, ("totals.xlsx",), ASK, "outward"),
    ],
)
def test_rule_table(risk, places, decision, rule):
    verdict = judge(action(risk, *places), Facts(trusted_text=REQUEST))
    assert (verdict.decision, verdict.rule) == (decision, rule)
    assert verdict.reason


def test_place_outside_may_be_read_when_the_user_names_it():
    facts = Facts(trusted_text="Read /var/log/syslog please")
    assert judge(action(Risk.READ, "/var/log/syslog"), facts).rule == "read_named"


def test_secret_may_be_read_when_the_user_names_it():
    facts = Facts(trusted_text="Compare server.pem with the old one")
    assert judge(action(Risk.READ, "server.pem"), facts).rule == "read_inside"


def test_suspicion_makes_a_named_write_ask_and_leaves_reading_alone():
    facts = Facts(trusted_text=REQUEST, suspicions=("override",))
    assert judge(action(Risk.WRITE, "totals.xlsx"), facts).rule == "suspicious"
    assert judge(action(Risk.READ, "a.txt"), facts).decision is ALLOW


def test_approval_is_for_exactly_one_action():
    approved = action(Risk.IRREVERSIBLE, "a.txt", tool="files.delete")
    facts = Facts(approved_hashes=frozenset({action_hash(approved)}))
    assert judge(approved, facts).rule == "approved"
    assert judge(action(Risk.IRREVERSIBLE, "b.txt", tool="files.delete"), facts).decision is ASK
    unknown = action(None, "a.txt", tool="files.delete")
    assert judge(unknown, facts).decision is DENY


@pytest.mark.parametrize(
    ("place", "text", "named"),
    [
        ("totals.xlsx", "to totals.xlsx.", True),
        ("totals.xlsx", "to 'totals.xlsx', then", True),
        ("totals.xlsx", "to ./totals.xlsx", True),
        ("totals.xlsx", "to totals.xlsx.bak", False),
        ("totals.xlsx", "to old-totals.xlsx", False),
        ("totals.xlsx", "to out/totals.xlsx", False),
        ("out", "to out/totals.xlsx", False),
        ("out/", "into out/", True),
        ("Totals.xlsx", "to totals.xlsx", False),
        (".", "everything here.", False),
        ("..", "a .. b", False),
        ("", "anything", False),
        ("example.com", "mail bob@example.com", False),
        ("bob@example.com", "mail bob@example.com.", True),
        ("https://a.example/x", "open https://a.example/x?y=1", False),
        ("https://a.example", "open https://a.example.evil", False),
        ("totals.xlsx", "把总计写入totals.xlsx然后打包", True),
        ("总计.xlsx", "写入《总计.xlsx》", True),
        ("总计.xlsx", "写入新总计.xlsx", False),
        ("/srv/x", "to /srv/x", True),
        ("srv/x", "to /srv/x", False),
    ],
)
def test_named_means_a_whole_word(place, text, named):
    assert is_named(place, text) is named


def test_destinations_come_from_the_declared_arguments():
    made = propose(
        "d", "t.x", {"path": "a", "to": ["b", "c"], "n": {"k": 1}, "text": "z"}, Risk.WRITE, ("path", "to", "n", "gone")
    )
    assert made.destinations == ("a", "b", "c", json.dumps({"k": 1}))


def test_owner_limit():
    assert owner_limit(action(Risk.WRITE, "a"), Risk.WRITE).decision is ALLOW
    assert owner_limit(action(Risk.EXTERNAL, "a"), Risk.WRITE).decision is DENY
    assert owner_limit(action(None, "a"), Risk.IRREVERSIBLE).decision is DENY


def test_risk_that_no_rule_knows_is_denied():
    strange = dataclasses.replace(action(Risk.WRITE, "totals.xlsx"), risk=cast("Risk", "telepathic"))
    assert judge(strange, Facts(trusted_text=REQUEST)).rule == "default"


def test_risks_are_ordered():
    assert at_least(Risk.IRREVERSIBLE, Risk.READ)
    assert not at_least(Risk.WRITE, Risk.EXTERNAL)


STRICTNESS = {ALLOW: 0, ASK: 1, DENY: 2}
risks = st.sampled_from(list(Risk))
places = st.lists(st.text(min_size=1, max_size=12), max_size=3)


@pytest.mark.properties
@given(risks, places, st.text(max_size=60))
def test_nothing_changes_unasked_where_the_user_did_not_say(risk, where, text):
    verdict = judge(action(risk, *where), Facts(trusted_text=text))
    if verdict.decision is ALLOW and risk is not Risk.READ:
        assert risk in (Risk.UNDOABLE, Risk.WRITE)
        assert where
        assert all(is_named(place, text) for place in where)


@pytest.mark.properties
@given(risks, risks, places, st.text(max_size=60))
def test_higher_risk_is_never_judged_more_mildly(one, other, where, text):
    low, high = (one, other) if at_least(other, one) else (other, one)
    facts = Facts(trusted_text=text)
    mild, strict = judge(action(low, *where), facts), judge(action(high, *where), facts)
    named_outside = low is Risk.READ and mild.rule in ("read_elsewhere", "read_secret")
    assert STRICTNESS[strict.decision] >= STRICTNESS[mild.decision] or named_outside


@pytest.mark.properties
@given(risks, places, st.text(max_size=60), st.lists(st.text(max_size=5), min_size=1, max_size=2))
def test_suspicion_is_never_judged_more_mildly(risk, where, text, signs):
    calm = judge(action(risk, *where), Facts(trusted_text=text))
    wary = judge(action(risk, *where), Facts(trusted_text=text, suspicions=tuple(signs)))
    assert STRICTNESS[wary.decision] >= STRICTNESS[calm.decision]


@pytest.mark.properties
@given(places, st.text(max_size=200))
def test_any_destination_and_text_are_judged_without_an_error(where, text):
    for place in where:
        assert is_named(place, text) in (True, False)
        if place.strip(". /") and place == place.rstrip("/") and not place.startswith("./"):
            assert is_named(place, f"to '{place}'")
