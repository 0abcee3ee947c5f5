"""A client that goes away while we speak is a closed connection, whatever the server's library calls it."""

import pytest
from starlette.websockets import WebSocketDisconnect

from starloom.aip.transport import TransportClosed
from starloom.aip.websocket import StarletteTransport


class Gone:
    """An accepted connection whose client has left."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def send(self, message: object) -> None:
        raise self.error

    async def receive(self) -> dict[str, object]:
        return {"type": "websocket.disconnect", "code": 1006}


@pytest.mark.parametrize("error", [WebSocketDisconnect(1006), RuntimeError("closed"), OSError()])
async def test_sending_to_a_client_that_left_closes_the_transport(error: Exception):
    transport = StarletteTransport(Gone(error))
    with pytest.raises(TransportClosed):
        await transport.send("{}")
    with pytest.raises(TransportClosed):
        await transport.receive()


@pytest.mark.parametrize("error", [WebSocketDisconnect(1006), RuntimeError("closed"), OSError()])
async def test_closing_towards_a_client_that_left_is_no_error(error: Exception):
    await StarletteTransport(Gone(error)).close()
