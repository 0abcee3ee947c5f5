"""Fakes of the vendors' wires over real HTTP: each reply whole or as that vendor's stream, also one that goes wrong."""

import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal


@dataclass(frozen=True)
class Turn:
    """What the server does with a request: the reply, or a stream that goes wrong after so many of its pieces."""

    text: str
    after: int | None = None
    how: Literal["ends", "breaks", "hangs", "errs"] = "ends"


@dataclass(frozen=True)
class Wire:
    """One vendor's way to say a reply."""

    provider: str
    model: str
    whole: Callable[[str], Mapping[str, Any]]
    pieces: Callable[[str], list[bytes]]
    error: bytes
    wants_stream: Callable[[str, dict[str, Any]], bool]
    end: bytes  # in the piece that says why the reply ended
    media_type: str = "text/event-stream"


@dataclass
class Vendor:
    """A server that speaks one wire. `left` is set when a client leaves a stream that hangs."""

    wire: Wire
    turns: list[Turn]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    is_asked: threading.Event = field(default_factory=threading.Event)
    is_closing: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: dict[str, Any]) -> Turn:
        self.paths.append(path)
        self.bodies.append(body)
        return self.turns[min(len(self.paths), len(self.turns)) - 1]


class _Answerer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    vendor: Vendor

    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        vendor, wire = self.vendor, self.vendor.wire
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        turn = vendor.take(self.path, body)
        self.send_response(200)
        if not wire.wants_stream(self.path, body):
            whole = json.dumps(wire.whole(turn.text)).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)
            return
        self.send_header("content-type", wire.media_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in wire.pieces(turn.text)[: turn.after]:
            self._chunk(piece)
        self._end(turn)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _end(self, turn: Turn) -> None:
        if turn.after is not None and turn.how == "errs":
            self._chunk(self.vendor.wire.error)
        if turn.after is None or turn.how in ("ends", "errs"):
            self._chunk(b"")
            return
        self.close_connection = True  # before its last chunk: the connection breaks
        if turn.how == "hangs":
            self.vendor.is_asked.set()
            self._wait_for_the_client()

    def _wait_for_the_client(self) -> None:
        self.connection.settimeout(0.02)
        while not self.vendor.is_closing.is_set():
            try:
                left = not self.connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                left = True
            if left:
                self.vendor.left.set()
                return


@contextmanager
def speaking(wire: Wire, *turns: Turn) -> Iterator[Vendor]:
    """Have a server on loopback for the block; the last turn answers all further requests."""
    vendor = Vendor(wire, list(turns))
    answerer = type("Answerer", (_Answerer,), {"vendor": vendor})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answerer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    vendor.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield vendor
    finally:
        vendor.is_closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _split(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def _event(content: Mapping[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content)}\n\n".encode()


def _says_stream(_: str, body: dict[str, Any]) -> bool:
    return bool(body.get("stream"))


# OpenAI's chat protocol


def _openai_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": 12,
        "completion_tokens": 7,
        "total_tokens": 19,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def _openai_whole(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    frame = {"id": "1", "object": "chat.completion", "created": 0, "model": "gpt"}
    return {**frame, "choices": [choice], "usage": _openai_usage()}


def _openai_pieces(text: str) -> list[bytes]:
    frame = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "gpt"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in _split(text))]
    chunks = [_event({**frame, "choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    end = _event({**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*chunks, end, _event({**frame, "choices": [], "usage": _openai_usage()}), b"data: [DONE]\n\n"]


# Anthropic's messages: the output tool's arguments come as pieces of JSON

_ANTHROPIC = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_sequence": None}
_CACHED = {"cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}


def _anthropic_whole(text: str) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": json.loads(text)}
    usage = {"input_tokens": 6, "output_tokens": 7, **_CACHED}
    return {**_ANTHROPIC, "content": [call], "stop_reason": "tool_use", "usage": usage}


def _anthropic_pieces(text: str) -> list[bytes]:
    usage = {"input_tokens": 6, "output_tokens": 1, **_CACHED}
    call = {"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**_ANTHROPIC, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "ping"},
    ]
    for piece in _split(text):
        delta = {"type": "input_json_delta", "partial_json": piece}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    return [_event(event, event["type"]) for event in events]


# Google's generateContent


def _gemini(text: str, finish: str | None) -> dict[str, Any]:
    counts = {
        "promptTokenCount": 12,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 19,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}, {"modality": "IMAGE", "tokenCount": 9}],
    }
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-2.5-flash"}


def _gemini_pieces(text: str) -> list[bytes]:
    *first, last = _split(text)
    return [*(_event(_gemini(piece, None)) for piece in first), _event(_gemini(last, "STOP"))]


# Bedrock's Converse: a stream of binary frames


def _frame(content: Mapping[str, Any], name: str, kind: str = "event") -> bytes:
    headers = b""
    label = ":event-type" if kind == "event" else ":exception-type"
    for key, value in ((label, name), (":content-type", "application/json"), (":message-type", kind)):
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    payload = json.dumps(content).encode()
    prelude = struct.pack(">II", 12 + len(headers) + len(payload) + 4, len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


_BEDROCK_USAGE = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}


def _bedrock_whole(text: str) -> dict[str, Any]:
    call = {"toolUse": {"toolUseId": "t1", "name": "final_result", "input": json.loads(text)}}
    output = {"message": {"role": "assistant", "content": [call]}}
    return {"output": output, "stopReason": "tool_use", "usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 1}}


def _bedrock_pieces(text: str) -> list[bytes]:
    start = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "final_result"}}}
    return [
        _frame({"role": "assistant"}, "messageStart"),
        _frame(start, "contentBlockStart"),
        *(
            _frame({"contentBlockIndex": 0, "delta": {"toolUse": {"input": piece}}}, "contentBlockDelta")
            for piece in _split(text)
        ),
        _frame({"contentBlockIndex": 0}, "contentBlockStop"),
        _frame({"stopReason": "tool_use"}, "messageStop"),
        _frame({"usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 1}}, "metadata"),
    ]


_OPENAI_ERROR = _event({"error": {"message": "The engine is overloaded", "type": "server_error", "code": 503}})
_ANTHROPIC_ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_GEMINI_ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}

WIRES = {
    "openai": Wire(
        "endpoint", "gpt", _openai_whole, _openai_pieces, _OPENAI_ERROR, _says_stream, b'"finish_reason": "stop"'
    ),
    "azure": Wire(
        "azure", "gpt", _openai_whole, _openai_pieces, _OPENAI_ERROR, _says_stream, b'"finish_reason": "stop"'
    ),
    "anthropic": Wire(
        "anthropic",
        "claude-haiku-4-5",
        _anthropic_whole,
        _anthropic_pieces,
        _event(_ANTHROPIC_ERROR, "error"),
        _says_stream,
        b"event: message_delta",
    ),
    "google": Wire(
        "google",
        "gemini-2.5-flash",
        lambda text: _gemini(text, "STOP"),
        _gemini_pieces,
        _event(_GEMINI_ERROR),
        lambda path, _: "streamGenerateContent" in path,
        b"STOP",
    ),
    "bedrock": Wire(
        "bedrock",
        "anthropic.claude-haiku-4-5-v1:0",
        _bedrock_whole,
        _bedrock_pieces,
        _frame({"message": "The model is busy."}, "throttlingException", "exception"),
        lambda path, _: path.endswith("/converse-stream"),
        b"messageStop",
        "application/vnd.amazon.eventstream",
    ),
}
