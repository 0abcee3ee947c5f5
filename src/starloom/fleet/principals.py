"""Who a connection belongs to, as the listener found out from its token and its certificate, before the first frame."""

from dataclasses import dataclass

from starloom.aip.messages import ClientType


@dataclass(frozen=True, slots=True)
class Principal:
    """What a token allows. None in a field means any: the shared key is `Principal()`.

    Attributes:
        invite: the name of the invitation this token is; the fleet turns it into a credential at registration.
        certified: the names in the certificate that the connection showed, one of which it must register; empty: it
            showed none and had to; None: it showed none, and none was asked for.
    """

    client_type: ClientType | None = None
    client_id: str | None = None
    invite: str | None = None
    certified: frozenset[str] | None = None

    @property
    def is_shared_key(self) -> bool:
        """Tell whether this is the hub's one key, which names nobody."""
        return self.client_type is None and self.client_id is None and self.invite is None

    def may_register(self, client_type: ClientType, client_id: str) -> bool:
        """Tell whether this token may register under that role and id."""
        return self.client_type in (None, client_type) and self.client_id in (None, client_id)

    def certificate_fits(self, client_type: ClientType, client_id: str) -> bool:
        """Tell whether the connection's certificate is for this id; a constellation client's ends with `@<device>`."""
        name = client_id.partition("@")[0] if client_type is ClientType.CONSTELLATION else client_id
        return self.certified is None or not self.certified.isdisjoint({client_id, name})
