"""What a device says about its tools is read with care."""

import pytest

from starloom.aip.extension import digest_of
from starloom.aip.messages import Result, ResultStatus
from starloom.fleet.toolbox import Listings, list_tools_command, tools_in, upstream_agent

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


SCHEMAS_THAT_ARE_NONE = [
    *(5, "text", ["type"]),
    *({"properties": []}, {"properties": {"path": 5}}, {"required": 5}, {"required": [5]}),
    *({"anyOf": 5}, {"anyOf": [5]}, {"items": []}, {"enum": 5}, {"type": 5}),
    {"properties": {"path": {"items": {"anyOf": {}}}}},
]


@pytest.mark.parametrize("schema", SCHEMAS_THAT_ARE_NONE)
def test_a_tool_whose_schema_is_none_is_left_out(schema):
    assert [tool.tool_name for tool in tools_in(listed({**INFO, "input_schema": schema}, INFO))] == ["a"]


@pytest.mark.parametrize("schema", [None, {}, {"properties": {"path": {"type": ["string", "null"]}, "more": True}}])
def test_a_tool_with_an_unusual_schema_is_taken(schema):
    assert [tool.input_schema for tool in tools_in(listed({**INFO, "input_schema": schema}))] == [schema]


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a\n", "\u202ea", "x" * 10_000, '"', "a\0"])
def test_a_tool_with_an_unusable_name_is_left_out(name):
    assert tools_in(listed({**INFO, "tool_name": name})) == ()


def test_a_list_has_an_end():
    infos = [{**INFO, "tool_name": f"t{number}", "description": "d" * 10_000} for number in range(1_200)]
    tools = tools_in(listed(*infos))
    assert (len(tools), tools[-1].tool_name, len(tools[0].description)) == (1_000, "t999", 2_000)


def test_upstreams_devices_are_asked_as_upstream_asks():
    assert list_tools_command(extended=False).parameters == {"tool_type": "action"}
    assert [upstream_agent(platform) for platform in ("linux", "windows", "mobile", "web")] == [
        "LinuxAgent",
        "HostAgent",
        "MobileAgent",
        None,
    ]


def listed(*infos):
    return [Result(ResultStatus.SUCCESS, result=list(infos))]


def test_a_list_is_known_by_the_digest_of_what_was_listed_and_by_no_other():
    listings = Listings()
    tools = listings.add(digest_of([INFO]), listed(INFO))
    assert [tool.tool_name for tool in tools] == ["a"]
    assert listings.find(digest_of([INFO])) is tools
    other = {**INFO, "tool_name": "b"}
    assert [tool.tool_name for tool in listings.add(digest_of([other]), listed(INFO))] == ["a"], "named wrongly"
    assert listings.find(digest_of([other])) is None
    assert [tool.tool_name for tool in listings.add(digest_of([INFO]), listed(other))] == ["b"], "what it lists counts"
    assert listings.find(digest_of([INFO])) is tools
    assert listings.add(digest_of([INFO]), listed(dict(reversed(INFO.items())))) is tools
    assert listings.find(None) is None


def test_only_so_many_lists_of_so_many_tools_are_kept():
    listings = Listings(most=2, limit=2)
    infos = [{**INFO, "tool_name": f"t{number}"} for number in range(3)]
    for info in infos:
        listings.add(digest_of([info]), listed(info))
    assert [listings.find(digest_of([info])) is not None for info in infos] == [False, True, True]
    listings.add(digest_of(infos), listed(*infos))
    assert listings.find(digest_of(infos)) is None


@pytest.mark.parametrize("odd", [{1, object()}, "\udcff"])
def test_what_cannot_be_written_has_no_digest(odd):
    assert digest_of([odd]) is None
