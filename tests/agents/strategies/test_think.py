"""What several calls used together, and how a reply reads in a later prompt."""

from starloom.agents.replies import DeviceAgentResponse
from starloom.agents.strategies.think import reply_text
from starloom.llm.port import Usage, total_usage


def test_usage_adds_up_and_an_unknown_cost_stays_unknown():
    assert total_usage([Usage(1, 2, 3, cost=0.5), Usage(1, 2, 3, cost=0.25)]) == Usage(2, 4, 6, 2, 0.75)
    assert total_usage([Usage(1, 2, cost=0.5), Usage(1, 2)]).cost is None


def test_a_reply_is_shown_without_what_it_left_out():
    reply = DeviceAgentResponse(thought="weiß", status="FINISH", result={"n": 0})
    assert reply_text(reply) == '{"thought": "weiß", "status": "FINISH", "result": {"n": 0}}'
