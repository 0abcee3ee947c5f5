"""What a device says of its tools becomes a profile; nothing that it says can break a plan, or open a door."""

import pytest

from starloom.aip.messages import MCPToolInfo
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.safety.policy import Decision, Facts, Risk
from starloom.safety.rules import judge, propose
from starloom.session.profiles import profile_of, tool_profile


def record(meta):
    tool = MCPToolInfo(
        tool_key="action::t", tool_name="t", namespace="n", tool_type="action", description="Does it.", meta=meta
    )
    return DeviceRecord("d", "linux", "linux", DeviceStatus.IDLE, tools=(tool,))


def test_our_devices_rate_their_tools():
    profile = tool_profile(record({"starloom": {"risk": "write", "destinations": ["path"]}}), "t")
    assert (profile.risk, profile.destinations) == (Risk.WRITE, ("path",))


@pytest.mark.parametrize(
    "meta",
    [
        *(None, {}, {"_fastmcp": {"tags": []}}, {"starloom": None}, {"starloom": "read"}, {"starloom": []}),
        *({"starloom": {"risk": "none"}}, {"starloom": {"risk": {}}}, {"starloom": {"destinations": ["path"]}}),
        *({"starloom": {"risk": "read", "destinations": 5}}, {"starloom": {"risk": "read", "destinations": [{}]}}),
    ],
)
def test_a_tool_that_nobody_rated_may_act_anywhere_so_it_is_asked_about(meta):
    there = record(meta)
    (profile,) = profile_of(there, has_agent=True).tools
    assert (profile.risk, profile.destinations) == (Risk.EXTERNAL, ())
    action = propose("d", "t", {"command": "echo hello"}, profile.risk, profile.destinations)
    assert judge(action, Facts(trusted_text="echo hello")).decision is Decision.ASK


def test_a_tool_that_is_not_listed_has_no_profile():
    assert tool_profile(record(None), "other") is None
