"""Who may talk to the hub: the key, the Host and the Origin, checked before any route or handshake.

Called by `hub.app` for HTTP and for WebSocket alike. Source: aip.md section 12 (unauthenticated dispatch, DNS
rebinding) and D30, D31: compare bytes in constant time, answer 403 and never 500, look at Host and Origin always.
"""

import hmac
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starloom.fleet.credentials import CredentialStore
from starloom.fleet.principals import Principal

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Guard:
    """The hub's key and the names it answers to.

    Attributes:
        extra_hosts: names beside loopback, when bound beyond it.
        certificate_required: on `/ws` nobody comes without a certificate.
    """

    key: str
    extra_hosts: frozenset[str] = frozenset()
    certificate_required: bool = False

    def key_is_right(self, offered: str | None) -> bool:
        """Compare in constant time, any characters; None and empty are wrong."""
        return bool(offered) and hmac.compare_digest(_bytes(offered), _bytes(self.key))

    def principal(
        self, offered: str | None, credentials: CredentialStore | None, certified: frozenset[str] | None = None
    ) -> Principal | None:
        """Return what a token allows on `/ws`: the hub's key anything, a device's own token or invitation that device.

        None: nothing. No other route takes a device's token.

        `certified`: the names in the certificate that was shown, which narrow the token; None: none was.
        """
        if certified is None and self.certificate_required:
            certified = frozenset()  # nobody's name; the registration is refused with a sentence
        if self.key_is_right(offered):
            return Principal(certified=certified)
        found = credentials.check(offered) if credentials is not None else None
        return replace(found, certified=certified) if found is not None else None

    def host_is_right(self, host: str | None) -> bool:
        """Tell whether a Host header names us; a browser on a rebound name says another."""
        name = _host_name(host)
        return name is not None and (name in _LOOPBACK or name in self.extra_hosts)

    def origin_is_right(self, origin: str | None) -> bool:
        """Tell whether an Origin header is absent (not a browser) or one of ours."""
        if origin is None:
            return True
        try:
            name = urlsplit(origin).hostname
        except ValueError:
            return False
        return name is not None and (name in _LOOPBACK or name in self.extra_hosts)


def _bytes(text: str | None) -> bytes:
    return (text or "").encode("utf-8", errors="surrogatepass")


def _host_name(host: str | None) -> str | None:
    if not host:
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
