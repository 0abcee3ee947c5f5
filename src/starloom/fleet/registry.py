"""All seats, and whoever watches them. Owned by the fleet."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starloom.deadlines import Deadlines
from starloom.fleet.errors import UnknownDevice
from starloom.fleet.known import KnownDevice, KnownDevices
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.fleet.seat import Lease, Seat
from starloom.fleet.settings import FleetSettings
from starloom.journal.events import DeviceConnected, DeviceDisconnected, DeviceStatusChanged, Event


class Registry:
    """Every device ever seen, by id.

    Args:
        settings: limits and times of the seats.
        observe: takes the journal's device events; synchronous, must not block.
        now: the clock's monotonic seconds: from now on a process of an earlier life has one lease's time.
        known: the devices of earlier lives, and where those of this life are remembered.
    """

    def __init__(
        self,
        settings: FleetSettings,
        observe: Callable[[Event], None] | None,
        known: KnownDevices | None = None,
        *,
        now: float = 0.0,
    ) -> None:
        self._settings = settings
        self._observe = observe
        self._known = known
        self._seats: dict[str, Seat] = {}
        self._limits = Deadlines()
        self._watchers: set[asyncio.Event] = set()
        for device in known.all() if known is not None else ():
            seat = self.add(device.device_id, device.platform, device.device_type)
            # What it was told counts, not what this hub would tell it.
            seat.lease = Lease(device.holder, now + max(settings.lease_s, device.lease_s or 0.0))
            seat.update(
                display_name=device.display_name, groups=device.groups, tags=device.tags, last_seen=device.last_seen
            )

    def records(self) -> tuple[DeviceRecord, ...]:
        """Return all records in the order of their ids."""
        return tuple(self._seats[device_id].record for device_id in sorted(self._seats))

    def find(self, device_id: str) -> Seat | None:
        """Return a device's seat; None when it was never seen."""
        return self._seats.get(device_id)

    def seat(self, device_id: str) -> Seat:
        """Return a device's seat.

        Raises:
            UnknownDevice: it was never seen.
        """
        seat = self._seats.get(device_id)
        if seat is None:
            raise UnknownDevice(device_id)
        return seat

    def add(self, device_id: str, platform: str, device_type: str, *, outpost: bool = False) -> Seat:
        """Make a seat for a device that is seen for the first time."""
        seat = Seat(
            DeviceRecord(device_id, platform, device_type, DeviceStatus.DISCONNECTED, outpost=outpost),
            cancel_grace_s=self._settings.cancel_grace_s,
            late_answer_s=self._settings.late_answer_s,
            limits=self._limits,
            changed=self._changed,
        )
        if len(self._seats) >= self._settings.max_known:
            self._forget_one()
        self._seats[device_id] = seat
        return seat

    def _forget_one(self) -> None:
        gone = [
            seat
            for seat in self._seats.values()
            if seat.status is DeviceStatus.DISCONNECTED and not seat.awaited and not seat.record.outpost
        ]
        free = next((seat for seat in gone if seat.lease.holder is None), None)  # nobody may act in its name any more
        oldest = free or next(iter(gone), None)
        if oldest is not None:
            self.forget(oldest.device_id)

    def forget(self, device_id: str) -> None:
        """Remove a device's seat and what is remembered of it; the caller saw that it is not connected."""
        del self._seats[device_id]
        if self._known is not None:
            self._known.forget(device_id)
        self._wake()

    def remember(self, seat: Seat) -> None:
        """Write down what is to outlive the hub; an outpost comes from its own file."""
        record = seat.record
        if self._known is None or record.outpost:
            return
        self._known.remember(
            KnownDevice(
                device_id=record.device_id,
                platform=record.platform,
                device_type=record.device_type,
                display_name=record.display_name,
                groups=record.groups,
                tags=record.tags,
                last_seen=record.last_seen,
                holder=seat.lease.holder,
                lease_s=self._settings.lease_s if seat.lease.holder is not None else None,
            )
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yield at once, and then after changes of any record; one yield may stand for many changes."""
        changed = asyncio.Event()
        changed.set()
        self._watchers.add(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield None
        finally:
            self._watchers.discard(changed)

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    def _changed(self, seat: Seat, before: DeviceStatus) -> None:
        self._wake()
        after = seat.status
        if before is after:
            return
        if after in (DeviceStatus.CONNECTED, DeviceStatus.DISCONNECTED):
            self.remember(seat)
        if self._observe is None:
            return
        self._observe(DeviceStatusChanged(seat.device_id, after.value))
        if before is DeviceStatus.CONNECTED and after.takes_work:
            self._observe(DeviceConnected(seat.device_id, seat.record.platform))
        if after is DeviceStatus.DISCONNECTED and before.is_online:
            self._observe(DeviceDisconnected(seat.device_id))
