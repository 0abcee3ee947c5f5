"""Who a connection belongs to, as the listener found out from its token, before the first frame."""

from dataclasses import dataclass

from starloom.aip.messages import ClientType


@dataclass(frozen=True, slots=True)
class Principal:
    """What a token allows. None in a field means any: the shared key is `Principal()`.

    Attributes:
        invite: the name of the invitation this token is; the fleet turns it into a credential at registration.
    """

    client_type: ClientType | None = None
    client_id: str | None = None
    invite: str | None = None

    @property
    def is_shared_key(self) -> bool:
        """Tell whether this is the hub's one key, which names nobody."""
        return self == Principal()

    def may_register(self, client_type: ClientType, client_id: str) -> bool:
        """Tell whether this token may register under that role and id."""
        return self.client_type in (None, client_type) and self.client_id in (None, client_id)
