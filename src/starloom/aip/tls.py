"""TLS for links by settings: which authorities to trust, and who we say we are.

Used by whoever dials with `aip.websocket.connect`; the hub's listener hands its own three paths to its server.
"""

import ssl
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator

from starloom.errors import UsageError


class TlsSettings(BaseModel):
    """Files of a dialling end.

    Attributes:
        authorities: certificates to trust instead of the system's; for a hub with a certificate of its own making.
        certificate: ours, for a server that asks its clients for one.
        key: the certificate's key; None: it is in the certificate's file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @model_validator(mode="after")
    def _key_needs_a_certificate(self) -> "TlsSettings":
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs a certificate")
        return self


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context that checks the server's certificate and name, TLS 1.2 or newer.

    Raises:
        UsageError: a file cannot be read or is not what it should be.
    """
    named = settings.authorities or settings.certificate
    try:
        context = ssl.create_default_context(cafile=settings.authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.certificate is not None:
            named = settings.certificate
            context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"The certificate files with {str(named)!r} cannot be used: {error}.") from error
    return context
