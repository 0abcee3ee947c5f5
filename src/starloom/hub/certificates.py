"""The names in a device's certificate, from the TLS layer to the application.

Called by `hub.serve`, which makes the server speak through this class, and by `hub.app`. The server checks who signed a
certificate; whose it is, it does not say, so the class adds the names to the scope of the connection.
"""

from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_EXTENSION = "starloom.certified"


class CertifiedWebSocket(WebSocketsSansIOProtocol):
    """The server's WebSocket, which knows the certificate of its other end."""

    async def run_asgi(self) -> None:
        """Run the application with the certificate's names in the scope."""
        certificate = self.transport.get_extra_info("peercert")
        if certificate:
            self.scope["extensions"] = {
                **self.scope.get("extensions", {}),
                _EXTENSION: {"names": names_in(certificate)},
            }
        await super().run_asgi()


def certified(scope: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the names in the certificate that a connection showed; None: it showed none."""
    shown = (scope.get("extensions") or {}).get(_EXTENSION)
    return shown["names"] if shown is not None else None


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that a checked certificate is for, as `SSLSocket.getpeercert` tells it: common and DNS names."""
    common = {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}
    alternative = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    return frozenset(common | alternative)
