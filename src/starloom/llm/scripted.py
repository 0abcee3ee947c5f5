"""A scripted model that is a real HTTP server: OpenAI's chat protocol on loopback, replies and faults as told.

For tests of every room and for rehearsals: real sockets and the real client library, no model. Not for production.

    with ScriptedServer([{"status": "FINISH"}, Fault(429, retry_after_s=1)]) as server:
        model = open_model(parse_model(server.model_form), …)
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, assert_never

MODEL_NAME = "scripted"


@dataclass(frozen=True, slots=True)
class Fault:
    """A reply that is none: a status and a body, headers, or a connection that is dropped or never answers.

    `hangs`: nothing is sent until the client leaves. `stops_after`: that many bytes of the body, then the end.
    """

    status: int = 500
    body: str = '{"error": {"message": "scripted"}}'
    content_type: str = "application/json"
    retry_after_s: float | None = None
    hangs: bool = False
    stops_after: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A reply's text with its details; a plain `str` or a JSON value in a script stands for `Said(text)`."""

    text: str | None
    finish_reason: str = "stop"
    tool_arguments: str | None = None  # sent as a call of the request's first tool
    model: str = MODEL_NAME
    prompt_tokens: int = 10
    completion_tokens: int = 5
    details: Mapping[str, Any] = field(default_factory=dict)  # more of what the usage says
    has_usage: bool = True


@dataclass(frozen=True, slots=True)
class Broken:
    """A reply that goes wrong after so many characters of its text; for requests that want a stream.

    `ends`: the stream ends as if it were done, with no reason. `breaks`: the connection does. `hangs`: nothing more
    is sent until the client leaves. `errs`: an error stands in the stream.
    """

    text: str
    after: int
    how: Literal["ends", "breaks", "hangs", "errs"]
    error: str = "The server is overloaded."


Line: TypeAlias = Said | Broken | Fault | str | Mapping[str, Any] | list[Any] | Callable[[dict[str, Any]], "Line"]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came: the path, the JSON body and the headers."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The text of each message, pictures left out."""
        found = []
        for message in self.body.get("messages", ()):
            content = message.get("content") or ""
            if isinstance(content, list):
                content = " ".join(part.get("text", "") for part in content)
            found.append(content)
        return found


class _Server(ThreadingHTTPServer):
    """The listening socket; its answerers ask the script's owner."""

    daemon_threads = True
    owner: "ScriptedServer"


class _Answerer(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """List the one model."""
        self._send(200, json.dumps({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]}))

    def do_POST(self) -> None:
        """Answer a chat request with the next line."""
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(raw or b"{}")
        line = self.server.owner.take(Received(self.path, body, headers))
        match line:
            case Said() if body.get("stream"):
                self._stream(_chunks(line, body))
                self.wfile.write(b"data: [DONE]\n\n")
            case Said():
                self._send(200, json.dumps(_completion(line, body)))
            case Broken():
                self._stream(_chunks(Said(line.text[: line.after]), body)[:-2], is_promised=line.how == "breaks")
                self._break(line)
            case Fault(hangs=True):
                self._wait_for_the_client()
            case Fault():
                self._send(line.status, line.body, line)
            case _:
                assert_never(line)

    def _break(self, line: Broken) -> None:
        match line.how:
            case "ends":
                self.wfile.write(b"data: [DONE]\n\n")
            case "errs":
                error = {"error": {"message": line.error, "type": "server_error", "code": 503}}
                self.wfile.write(f"data: {json.dumps(error)}\n\n".encode())
            case "hangs":
                self._wait_for_the_client()
            case "breaks":
                pass  # more was promised than came

    def _wait_for_the_client(self) -> None:
        """Return when the client has left, or the server is being closed."""
        self.server.owner.hanging.set()
        self.connection.settimeout(0.02)
        while not self.server.owner.is_closing:
            try:
                left = not self.connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                left = True
            if left:
                self.server.owner.left.set()
                break
        self.close_connection = True

    def _send(self, status: int, text: str, fault: Fault | None = None) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", fault.content_type if fault else "application/json")
        self.send_header("content-length", str(len(content)))
        if fault and fault.retry_after_s is not None:
            self.send_header("retry-after", f"{fault.retry_after_s:g}")
        self.end_headers()
        if fault and fault.stops_after is not None:
            content = content[: fault.stops_after]
            self.close_connection = True
        self.wfile.write(content)

    def _stream(self, chunks: Iterable[dict[str, Any]], *, is_promised: bool = False) -> None:
        self.send_response(200)
        if is_promised:
            self.send_header("content-length", str(1 << 20))
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.close_connection = True


class ScriptedServer:
    """Answers each chat request with the script's next line; the last line answers all further ones."""

    def __init__(self, script: Iterable[Line], *, key: str | None = None) -> None:
        self._script = list(script)
        self._key = key
        self._lock = threading.Lock()  # guards the position in the script and the list of requests
        self._next = 0
        self._closing = threading.Event()
        self.requests: list[Received] = []
        self.hanging = threading.Event()  # set when a reply begins to hang
        self.left = threading.Event()  # set when a client leaves a reply that hangs
        self._server = _Server(("127.0.0.1", 0), _Answerer)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def base_url(self) -> str:
        """The address of its API, as a profile wants it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def model_form(self) -> str:
        """The short form for `STARLOOM_MODEL`."""
        return f"{self.base_url}#{MODEL_NAME}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, received: Received) -> Said | Broken | Fault:
        """Return the answer to a request; called by the server's threads."""
        with self._lock:
            self.requests.append(received)
            line: Line = self._script[min(self._next, len(self._script) - 1)] if self._script else Fault(503)
            self._next += 1
        if self._key is not None and received.headers.get("authorization") != f"Bearer {self._key}":
            return Fault(401, json.dumps({"error": {"message": f"Incorrect API key: {received.headers}"}}))
        while callable(line):
            line = line(received.body)
        if isinstance(line, Said | Broken | Fault):
            return line
        return Said(line if isinstance(line, str) else json.dumps(line))

    @property
    def is_closing(self) -> bool:
        """Whether the server is being closed, so that nothing hangs any more."""
        return self._closing.is_set()


def _completion(said: Said, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.tool_arguments is not None:
        message["tool_calls"] = [_tool_call(said, body)]
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish_reason}],
        **({"usage": _usage(said)} if said.has_usage else {}),
    }


def _chunks(said: Said, body: dict[str, Any]) -> list[dict[str, Any]]:
    frame = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": said.model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    text = said.text or ""
    deltas += [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
    if said.tool_arguments is not None:
        deltas.append({"tool_calls": [{"index": 0, **_tool_call(said, body)}]})
    chunks = [{**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": said.finish_reason}]})
    return [*chunks, {**frame, "choices": [], **({"usage": _usage(said)} if said.has_usage else {})}]


def _tool_call(said: Said, body: dict[str, Any]) -> dict[str, Any]:
    tools = body.get("tools") or [{"function": {"name": "final_result"}}]
    function = {"name": tools[0]["function"]["name"], "arguments": said.tool_arguments}
    return {"id": "call_scripted", "type": "function", "function": function}


def _usage(said: Said) -> dict[str, Any]:
    total = said.prompt_tokens + said.completion_tokens
    counted = {"prompt_tokens": said.prompt_tokens, "completion_tokens": said.completion_tokens}
    return {**counted, "total_tokens": total, **said.details}
