"""Which ready task starts next, and on which device; the scheduler's queues.

Ready tasks wait in lanes, one per combination of what they need (wished device, device type, tool). A lane knows the
devices that fit and which of them have room, so that a freed device costs a look at its own lanes only.

Order: priority, then longest remaining path, then insertion. Device: the wished one and no other (its files may be
nowhere else), else one that fits, with the fewest live attempts, then the best record in this run, then the directory's
order.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from starloom.constellation.enums import DeviceType
from starloom.constellation.star import TaskStar
from starloom.ids import DeviceId, TaskId
from starloom.orchestrator.ports import DeviceOffer


class Need(NamedTuple):
    """What a task asks of a device; None asks nothing."""

    device_id: str | None
    device_type: DeviceType | None
    tool: str | None


Entry: TypeAlias = tuple[int, int, int, int, TaskStar]


@dataclass(slots=True, eq=False)
class Slot:
    """A device and how much of it is in use."""

    offer: DeviceOffer
    place: int
    busy: int = 0
    successes: int = 0
    failures: int = 0
    is_offered: bool = True
    lanes: list["Lane"] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        """Whether it may take another attempt."""
        return self.is_offered and self.busy < self.offer.max_tasks

    @property
    def rank(self) -> tuple[int, float, int]:
        """How it compares to others, least first."""
        return (self.busy, self.failures / (self.successes + self.failures + 1), self.place)


@dataclass(slots=True, eq=False)
class Lane:
    """The ready tasks of one need, and the devices that fit it."""

    need: Need
    heap: list[Entry] = field(default_factory=list)
    fitting: int = 0
    free: set[Slot] = field(default_factory=set)


def need_of(star: TaskStar) -> Need:
    """Return what the task asks of a device."""
    tool = star.spec.task_data.get("tool")
    return Need(star.spec.target_device_id, star.spec.device_type, tool if isinstance(tool, str) else None)


class Assignment:
    """The lanes and slots of one run."""

    def __init__(self) -> None:
        self.slots: dict[DeviceId, Slot] = {}
        self._lanes: dict[Need, Lane] = {}
        self._active: dict[Lane, None] = {}
        self._queued: dict[TaskId, tuple[Entry, Lane]] = {}
        self._count = 0
        self._unserved: dict[Lane, None] = {}

    def set_offers(self, offers: Iterable[DeviceOffer]) -> tuple[list[DeviceOffer], list[DeviceId]]:
        """Take the devices connected now; return who is new and who is gone. Live attempts keep their slots."""
        new: list[DeviceOffer] = []
        here = {offer.device_id: offer for offer in offers}
        gone = [
            slot.offer.device_id for slot in self.slots.values() if slot.is_offered and slot.offer.device_id not in here
        ]
        for place, offer in enumerate(here.values()):
            slot = self.slots.get(offer.device_id)
            if slot is None:
                slot = self.slots[offer.device_id] = Slot(offer, place)
                new.append(offer)
            elif not slot.is_offered:
                new.append(offer)
            slot.offer, slot.place, slot.is_offered = offer, place, True
        for device_id in gone:
            self.slots[device_id].is_offered = False
        for slot in self.slots.values():
            slot.lanes.clear()
        for lane in self._lanes.values():
            self._fit(lane)
        return new, gone

    def queue(self, star: TaskStar, remaining: int) -> bool:
        """Let a ready task wait for its turn; again, to correct its place. Return whether it was not waiting yet."""
        self._count += 1
        entry: Entry = (-star.spec.priority, -remaining, star.position, self._count, star)
        need = need_of(star)
        lane = self._lanes.get(need)
        if lane is None:
            lane = self._lanes[need] = Lane(need)
            self._fit(lane)
        is_new = star.task_id not in self._queued
        self._queued[star.task_id] = (entry, lane)
        heapq.heappush(lane.heap, entry)
        if lane.free:
            self._active[lane] = None
        elif not lane.fitting:
            self._unserved[lane] = None
        return is_new

    def is_queued(self, task_id: TaskId) -> bool:
        """Whether the task waits for its turn."""
        return task_id in self._queued

    def withdraw(self, task_id: TaskId) -> None:
        """Forget a task that is not ready any more; nothing happens when it did not wait."""
        self._queued.pop(task_id, None)

    def take_next(self) -> tuple[TaskStar, Slot] | None:
        """Return the next task and its device, both no longer waiting; None when no task has a free device."""
        best: Entry | None = None
        chosen: Lane | None = None
        for lane in list(self._active):
            entry = self._top(lane) if lane.free else None
            if entry is None:
                del self._active[lane]
            elif best is None or entry < best:
                best, chosen = entry, lane
        if best is None or chosen is None:
            return None
        heapq.heappop(chosen.heap)
        star = best[4]
        del self._queued[star.task_id]
        slot = next(iter(chosen.free)) if len(chosen.free) == 1 else min(chosen.free, key=lambda item: item.rank)
        return star, slot

    def occupy(self, slot: Slot) -> None:
        """Count a live attempt on the device."""
        slot.busy += 1
        if not slot.has_room:
            for lane in slot.lanes:
                lane.free.discard(slot)

    def occupy_device(self, device_id: DeviceId) -> None:
        """Count a live attempt on a device that may not be connected, after a restart."""
        slot = self.slots.get(device_id)
        if slot is None:
            offer = DeviceOffer(device_id, "")
            slot = self.slots[device_id] = Slot(offer, len(self.slots), is_offered=False)
        self.occupy(slot)

    def free(self, device_id: DeviceId, success: bool | None = None) -> None:
        """Uncount an attempt, with how it ended when that says something about the device."""
        slot = self.slots.get(device_id)
        if slot is None:
            return
        slot.busy -= 1
        if success is not None:
            slot.successes += success
            slot.failures += not success
        if slot.has_room:
            for lane in slot.lanes:
                lane.free.add(slot)
                if lane.heap:
                    self._active[lane] = None

    def is_offered(self, device_id: DeviceId) -> bool:
        """Whether the device is connected."""
        slot = self.slots.get(device_id)
        return slot is not None and slot.is_offered

    def unserved(self) -> list[tuple[TaskStar, str]]:
        """Return the waiting tasks that no connected device fits, each with what is missing; only what may be news."""
        lanes, self._unserved = list(self._unserved), {}
        found = []
        for lane in lanes:
            if not lane.fitting:
                reason = self._missing(lane.need)
                found += [(entry[4], reason) for entry in sorted(lane.heap) if self._is_current(entry)]
        return found

    def lacks(self, task_id: TaskId) -> str | None:
        """Return what is missing for a waiting task; None when a connected device fits, or it does not wait."""
        queued = self._queued.get(task_id)
        return None if queued is None or queued[1].fitting else self._missing(queued[1].need)

    def _fit(self, lane: Lane) -> None:
        lane.free.clear()
        lane.fitting = 0
        wished = lane.need.device_id
        slots = list(self.slots.values()) if wished is None else [self.slots.get(DeviceId(wished))]
        for slot in slots:
            if slot is not None and slot.is_offered and _fits(slot.offer, lane.need):
                lane.fitting += 1
                slot.lanes.append(lane)
                if slot.has_room:
                    lane.free.add(slot)
        if lane.free and lane.heap:
            self._active[lane] = None
        if not lane.fitting and lane.heap:
            self._unserved[lane] = None

    def _top(self, lane: Lane) -> Entry | None:
        heap = lane.heap
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _is_current(self, entry: Entry) -> bool:
        queued = self._queued.get(entry[4].task_id)
        return queued is not None and queued[0] is entry

    def _missing(self, need: Need) -> str:
        offers = [slot.offer for slot in self.slots.values() if slot.is_offered]
        if need.device_id is not None:
            offers = [offer for offer in offers if offer.device_id == need.device_id]
            if not offers:
                return f"device {need.device_id!r} is not connected"
            if need.device_type is not None and offers[0].device_type != need.device_type:
                return f"device {need.device_id!r} is of type {offers[0].device_type}, not {need.device_type.value}"
            return f"device {need.device_id!r} does not offer the tool {need.tool!r}"
        if not offers:
            return "no device is connected"
        typed = [offer for offer in offers if need.device_type in {None, offer.device_type}]
        if not typed and need.device_type is not None:
            return f"no connected device is of type {need.device_type.value}"
        return f"no connected device that fits offers the tool {need.tool!r}"


def _fits(offer: DeviceOffer, need: Need) -> bool:
    if need.device_type is not None and offer.device_type != need.device_type:
        return False
    return need.tool is None or not offer.tools or need.tool in offer.tools
