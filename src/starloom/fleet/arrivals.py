"""Coming and going: who is let in, under which session, and what happens when a connection ends.

Part of the fleet. One client id has one live connection; an older one yields to its own session, or when it fails a
probe (D10). A lost device may come back to its session within a window; only then are its commands given up.
"""

import asyncio
import hmac
import logging
import secrets
from dataclasses import replace

from starloom.aip.extension import Capability, Offer
from starloom.aip.messages import ClientType, MCPToolInfo
from starloom.aip.protocol import NORMAL
from starloom.aip.server_events import RegistrationAsked
from starloom.aip.transport import TransportClosed
from starloom.clock import Clock
from starloom.errors import DeviceError
from starloom.fleet.admission import Refusal, fault_of, profile_of
from starloom.fleet.credentials import CredentialStore
from starloom.fleet.records import DeviceStatus
from starloom.fleet.registry import Registry
from starloom.fleet.seat import Lease, Order, Seat, WireSession
from starloom.fleet.sessions import Sessions
from starloom.fleet.settings import FleetSettings
from starloom.fleet.toolbox import Listings, list_tools_command, upstream_agent
from starloom.fleet.visit import Visit

logger = logging.getLogger(__name__)

OFFERED = tuple(capability.value for capability in Capability)
OFFERED_TO_CONSTELLATIONS = (
    Capability.CANCEL.value,
    Capability.RESUME.value,
    Capability.PRESENCE.value,
    Capability.ERRORS.value,
)


class Arrivals:
    """All registered connections, and the way in and out.

    Args:
        registry: the devices' seats.
        sessions: the tasks that end with their device.
        visits: the live, registered connections by client id; changed here only.
        clock: for time stamps and the window of return.
        settings: limits and times.
        credentials: turns invitations into credentials; None: nobody comes by invitation.
    """

    def __init__(
        self,
        registry: Registry,
        sessions: Sessions,
        visits: dict[str, Visit],
        *,
        clock: Clock,
        settings: FleetSettings,
        credentials: CredentialStore | None,
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self.visits = visits
        self._clock = clock
        self._settings = settings
        self._credentials = credentials
        self.closing = asyncio.Event()
        self._listings = Listings()
        self._told: dict[str | None, set[Visit]] = {}  # the constellation clients, by the device they are for
        self._requesters: dict[str, Visit] = {}  # the last connection of each constellation client that may come back

    async def admit(self, visit: Visit, asked: RegistrationAsked) -> None:
        """Decide on a REGISTER: refuse it, or take the client in, after probing an older connection of that id."""
        refusal = self._refusal(visit, asked)
        if refusal is None and not await self._is_free(visit, asked):
            text = f"client_id '{asked.client_id}' is already registered; duplicate registrations are not allowed"
            refusal = Refusal(text, "duplicate")
        if refusal is None and visit.client_type is ClientType.DEVICE:
            refusal = self._held(asked)
        if visit.over.is_set() or visit.protocol.closing is not None:
            return  # it left, or was put out, while we probed; the older connection stays
        credential = None
        if refusal is None and visit.principal.invite is not None:
            credential = self._redeemed(visit.principal.invite, asked)
            if credential is None:
                refusal = Refusal("This invitation is used up, or not for this device", "invitation")
            else:  # from now on this connection is what its own token, once stored, will be again
                visit.principal = replace(
                    visit.principal, client_type=ClientType.DEVICE, client_id=asked.client_id, invite=None
                )
        if refusal is not None:
            visit.protocol.refuse(refusal.text, code=refusal.code)
        else:
            self._replace(asked.client_id)
            self._take_in(visit, asked, credential)
        visit.flush()

    # Coming and going

    def _refusal(self, visit: Visit, asked: RegistrationAsked) -> Refusal | None:
        target = self.visits.get(asked.message.target_id or "")
        if len(self.visits) >= self._settings.max_clients and asked.client_id not in self.visits:
            return Refusal("This server has as many clients as it takes", "full")
        if visit.principal.is_shared_key and self._has_credential(asked.client_id):
            return Refusal("This client_id has a credential of its own, and only that may register it", "credential")
        return fault_of(
            asked.message,
            visit.principal,
            device_is_online=target is not None and target.client_type is ClientType.DEVICE,
            unscoped_allowed=self._settings.unscoped_constellations
            or visit.principal.client_type is ClientType.CONSTELLATION,
        )

    def _has_credential(self, client_id: str) -> bool:
        return self._credentials is not None and self._credentials.credential_of(client_id) is not None

    async def _is_free(self, visit: Visit, asked: RegistrationAsked) -> bool:
        """Return whether the id may be taken; an older connection yields to its own session, or when it is dead."""
        old = self.visits.get(asked.client_id)
        if old is None or _is_resumed(self._registry.find(asked.client_id), asked.offer):
            return True
        if _goes_on(old.session, asked.offer):
            return True
        if old.principal != visit.principal or old.client_type is not visit.client_type:
            return False
        if await old.probe(fresh_s=self._settings.fresh_s):
            return False
        return self.visits.get(asked.client_id) in (None, old)  # else someone was faster while we waited

    def _held(self, asked: RegistrationAsked) -> Refusal | None:
        """Return why the place is not free yet: a process that was lost may still act, until its lease is over."""
        seat = self._registry.find(asked.client_id)
        if seat is None or _is_resumed(seat, asked.offer):
            return None
        old = self.visits.get(asked.client_id)
        if old is not None and seat.connection is old:
            seat.lease.until = old.protocol.last_heard + self._settings.lease_s
        now = self._clock.monotonic()
        if seat.lease.allows(asked.offer.instance if asked.offer is not None else None, now):
            return None
        left_s = seat.lease.until - now
        return Refusal(f"Another process was {asked.client_id!r} and may act for {left_s:.0f} s more", "leased")

    def _replace(self, client_id: str) -> None:
        """Close the older connection of an id; its session waits for the newcomer, which comes in at once."""
        old = self.visits.pop(client_id, None)
        if old is None:
            return
        logger.info("A dead connection of %r is replaced.", client_id)
        old.protocol.close(NORMAL, "replaced by a newer connection")
        old.flush()
        seat = self._registry.find(client_id)
        if seat is not None:
            seat.leave(old, may_return=True)

    def _take_in(self, visit: Visit, asked: RegistrationAsked, credential: str | None) -> None:
        self.visits[asked.client_id] = visit
        if visit.client_type is ClientType.DEVICE:
            self._take_in_device(visit, asked, credential)
        else:
            self._take_in_constellation(visit, asked)

    def _redeemed(self, invite: str, asked: RegistrationAsked) -> str | None:
        """Return the newcomer's own token; None when the invitation is used up, or it could not take the token in."""
        if asked.offer is None or self._credentials is None:
            return None
        return self._credentials.redeem(invite, asked.client_id)

    def _take_in_device(self, visit: Visit, asked: RegistrationAsked, credential: str | None) -> None:
        profile = profile_of(asked.message, asked.offer)
        seat = self._registry.find(asked.client_id)
        if seat is None:
            seat = self._registry.add(asked.client_id, profile.platform, profile.device_type)
        seat.move(DeviceStatus.REGISTERING)
        resumed = _is_resumed(seat, asked.offer)
        session = seat.session if resumed and seat.session is not None else WireSession(secrets.token_urlsafe(24))
        self._accept(visit, session, resumed=resumed, credential=credential)
        now = self._clock.now()
        wished = (asked.offer.max_in_flight if asked.offer is not None else None) or 1
        parallel = visit.protocol.can(Capability.PARALLEL)
        seat.update(
            platform=profile.platform,
            device_type=profile.device_type,
            system_info=profile.system_info,
            tags=profile.tags,
            connected_at=now,
            last_seen=now,
            capabilities=frozenset(capability.value for capability in visit.protocol.agreed),
            max_in_flight=min(wished, self._settings.max_in_flight) if parallel else 1,
        )
        leased = asked.offer is not None and visit.protocol.can(Capability.LEASES)
        seat.lease = Lease(asked.offer.instance if leased and asked.offer is not None else None)
        seat.occupy(visit, session)
        self._learn_tools(seat, visit, seat.record.tools if resumed else ())
        self._tell_presence(asked.client_id, online=True)

    def _learn_tools(self, seat: Seat, visit: Visit, kept: tuple[MCPToolInfo, ...]) -> None:
        """Take the device's tools from a list that was heard before, or ask; with `kept` ones it need not wait."""
        digest = visit.protocol.offer.tools if visit.protocol.offer is not None else None
        known = self._listings.find(digest)
        if known or kept:
            seat.update(tools=known or kept)
            seat.open()
        if known is None and (digest is not None or not kept) and visit.group is not None:
            visit.group.create_task(self._list_tools(seat, visit, kept))

    def _accept(self, visit: Visit, session: WireSession, *, resumed: bool, credential: str | None) -> None:
        offer = Offer(
            caps=OFFERED,
            token=session.token,
            received=session.ledger.received,
            resumed=resumed,
            credential=credential,
            lease_s=self._settings.lease_s,
            heartbeat_s=self._settings.heartbeat_s,
        )
        visit.protocol.accept(self._clock.monotonic(), offer=offer, ledger=session.ledger, book=session.book)

    def _take_in_constellation(self, visit: Visit, asked: RegistrationAsked) -> None:
        visit.scope = asked.message.target_id
        self._told.setdefault(visit.scope, set()).add(visit)
        old = self._requesters.get(asked.client_id)
        resumed = old is not None and old.scope == visit.scope and _goes_on(old.session, asked.offer)
        session = old.session if resumed and old is not None else None
        session = session or WireSession(secrets.token_urlsafe(24))
        offer = Offer(
            caps=OFFERED_TO_CONSTELLATIONS,
            token=session.token,
            received=session.ledger.received,
            resumed=resumed,
            heartbeat_s=self._settings.heartbeat_s,
        )
        visit.protocol.accept(self._clock.monotonic(), offer=offer, ledger=session.ledger)
        if not visit.protocol.can(Capability.RESUME):
            return
        visit.session = session
        self._requesters[asked.client_id] = visit
        if resumed and old is not None:
            self._sessions.adopt(old, visit)
            old.returned.set()

    async def _list_tools(self, seat: Seat, visit: Visit, tools: tuple[MCPToolInfo, ...]) -> None:
        """Ask a device for its tools; one that does not tell takes work all the same, with the tools of before."""
        extended = visit.protocol.extended
        order = Order(
            session_id=visit.protocol.stamps.new_id(),
            task_name="list_tools",
            timeout_s=self._settings.list_tools_timeout_s,
            agent_name=upstream_agent(seat.record.platform),
        )
        try:
            answer = await seat.call([list_tools_command(extended)], order)
            tools = self._listings.add(visit.protocol.offer.tools if visit.protocol.offer else None, answer)
        except DeviceError as error:
            logger.warning("The device %r did not list its tools: %s", seat.device_id, error)
        if seat.connection is visit:
            seat.update(tools=tools)
            seat.open()

    def departed(self, visit: Visit, ended: TransportClosed) -> Seat | None:
        """Clear up after a connection; return the seat of a device that may come back to its session."""
        if self.visits.get(visit.client_id) is visit:
            del self.visits[visit.client_id]
        if visit.client_type is ClientType.CONSTELLATION:
            self._told.get(visit.scope, set()).discard(visit)
            return None
        seat = self._registry.find(visit.client_id)
        if seat is None or seat.connection is not visit:
            return None
        may_return = visit.protocol.can(Capability.RESUME) and ended.code != NORMAL and not self.closing.is_set()
        may_return = may_return and self._settings.resume_window_s > 0
        if ended.code == NORMAL and not visit.sent_away and not seat.has_work:
            seat.lease = Lease()
        else:
            seat.lease.until = visit.protocol.last_heard + self._settings.lease_s
        seat.update(last_seen=self._clock.now())
        seat.leave(visit, may_return=may_return)
        self._tell_presence(visit.client_id, online=False)
        if not may_return:
            self._sessions.device_gone(visit.client_id)
            return None
        return seat

    async def await_requester(self, visit: Visit, ended: TransportClosed) -> None:
        """Give a lost constellation client its time to come back for the ends of its tasks; then they are stopped."""
        gone = ended.code == NORMAL or visit.sent_away or self.closing.is_set()
        try:
            if not gone and self._settings.resume_window_s > 0:
                await self._first_of(visit.returned)
        finally:
            if self._requesters.get(visit.client_id) is visit:
                del self._requesters[visit.client_id]
            performing = self._sessions.leave(visit)
            if performing:
                await asyncio.wait(performing)

    async def _first_of(self, returned: asyncio.Event) -> None:
        """Wait for a return, for the end of the window, or for the end of the fleet."""
        waits = [
            asyncio.ensure_future(self._clock.sleep(self._settings.resume_window_s)),
            asyncio.ensure_future(returned.wait()),
            asyncio.ensure_future(self.closing.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def await_return(self, seat: Seat) -> None:
        """Give a lost device its time to come back; then its commands are lost and its tasks end."""
        try:
            await self._first_of(seat.returned)
        finally:
            if seat.connection is None and seat.awaited:
                seat.give_up()
                self._sessions.device_gone(seat.device_id)

    def _tell_presence(self, device_id: str, *, online: bool) -> None:
        for visit in self._told.get(None, set()) | self._told.get(device_id, set()):
            visit.protocol.presence(device_id, online)
            visit.flush()


def _is_resumed(seat: Seat | None, offer: Offer | None) -> bool:
    """Tell whether a newcomer names the seat's own session and nothing of it was lost."""
    return seat is not None and _goes_on(seat.session, offer)


def _goes_on(session: WireSession | None, offer: Offer | None) -> bool:
    """Tell whether a newcomer names this session and nothing of it was lost."""
    if session is None or offer is None or offer.token is None or offer.received is None:
        return False
    same = hmac.compare_digest(offer.token.encode(), session.token.encode())
    return same and session.ledger.can_resume(offer.received)
