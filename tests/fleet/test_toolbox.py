"""What a device says about its tools is read with care."""

import pytest

from starloom.aip.messages import Result, ResultStatus
from starloom.fleet.toolbox import list_tools_command, tools_in, upstream_agent

INFO = {"tool_key": "action::a", "tool_name": "a", "namespace": "n", "tool_type": "action"}


@pytest.mark.parametrize(
    ("results", "names"),
    [
        ([], []),
        ([Result(ResultStatus.FAILURE, result=[INFO])], []),
        ([Result(ResultStatus.SUCCESS, result=None)], []),
        ([Result(ResultStatus.SUCCESS, result={"a": 1})], []),
        ([Result(ResultStatus.SUCCESS, result=[None, 5, {}, INFO, {**INFO, "tool_name": 5}])], ["a"]),
    ],
)
def test_failed_or_odd_listing_has_the_tools_that_make_sense(results, names):
    assert [tool.tool_name for tool in tools_in(results)] == names


def test_upstreams_devices_are_asked_as_upstream_asks():
    assert list_tools_command(extended=False).parameters == {"tool_type": "action"}
    assert [upstream_agent(platform) for platform in ("linux", "windows", "mobile", "web")] == [
        "LinuxAgent",
        "HostAgent",
        "MobileAgent",
        None,
    ]
