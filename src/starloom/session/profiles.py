"""The fleet as planners and the scheduler see it: profiles for planning, offers for assignment.

Adapts `fleet` to `agents.plans` and `orchestrator.ports`; called by the composition root.
"""

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from starloom.agents.plans import DeviceProfile, ToolProfile
from starloom.aip.messages import MalformedMessage, MCPToolInfo, read
from starloom.errors import WireError
from starloom.fleet.fleet import Fleet
from starloom.fleet.records import DeviceRecord
from starloom.ids import DeviceId
from starloom.orchestrator.ports import DeviceOffer
from starloom.safety.policy import Risk


class FleetDirectory:
    """The fleet as a `DeviceDirectory`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def offers(self) -> Sequence[DeviceOffer]:
        """Return the devices that can take work now, by id."""
        return tuple(
            DeviceOffer(
                device_id=DeviceId(record.device_id),
                device_type=record.device_type,
                tools=frozenset(tool.tool_name for tool in record.tools),
                max_tasks=record.max_in_flight,
            )
            for record in self._fleet.records()
            if record.status.takes_work
        )

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever the offers may have changed."""
        return self._fleet.changes()


async def device_there(fleet: Fleet, device_id: str) -> DeviceRecord:
    """Return the device's record as soon as it can take work; wait as long as it takes."""
    async for _ in fleet.changes():
        for record in fleet.records():
            if record.device_id == device_id and record.status.takes_work:
                return record
    raise WireError(f"The fleet closed while device {device_id!r} was waited for.", device_id=device_id)


def device_profiles(fleet: Fleet, *, here: str, has_agent: bool) -> tuple[DeviceProfile, ...]:
    """Return the connected devices for a planner, the hub's own first: it is what a request means by «here».

    Args:
        fleet: the devices.
        here: the id of the hub's own device.
        has_agent: a model is there to pursue goals without a tool; an outpost has an agent of its own.
    """
    records = sorted(fleet.records(), key=lambda record: (record.device_id != here, record.device_id))
    return tuple(
        profile_of(record, has_agent=has_agent or record.outpost) for record in records if record.status.takes_work
    )


def profile_of(record: DeviceRecord, *, has_agent: bool) -> DeviceProfile:
    """Return one device for a planner."""
    tools = tuple(_tool_profile(tool) for tool in record.tools)
    return DeviceProfile(record.device_id, record.device_type, tools, has_agent=has_agent)


def tool_profile(record: DeviceRecord, tool_name: str) -> ToolProfile | None:
    """Return what a device says of one of its tools; None when it does not offer it."""
    return next((_tool_profile(tool) for tool in record.tools if tool.tool_name == tool_name), None)


class _Rating(Struct, frozen=True):
    """What a Starloom device says of a tool's risk, and which arguments say where it acts."""

    risk: Risk
    destinations: tuple[str, ...] = ()


_UNRATED = _Rating(Risk.EXTERNAL)  # as any tool that nobody rated (0054): every call of it asks


def _tool_profile(tool: MCPToolInfo) -> ToolProfile:
    try:
        rating = read(_Rating, (tool.meta or {}).get("starloom"))
    except MalformedMessage:
        rating = _UNRATED
    return ToolProfile(
        name=tool.tool_name,
        description=tool.description or "",
        input_schema=tool.input_schema or {"type": "object"},
        risk=rating.risk,
        destinations=rating.destinations,
    )
