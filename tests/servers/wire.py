"""A model service on loopback that speaks the three wire formats; scripted per call, counting every call.

In a test:

    with WireServer(script=[Reply(kind="429", headers={"retry-after": "0"}), Reply(text="hello")]) as server:
        ... base_url=server.openai_url or server.anthropic_url ...
        server.calls            # every request, with its raw body

As a process, for a client that is killed while the service lives on:

    python -m tests.servers.wire --port 0 --answers answers.json --calls calls.jsonl

prints one line of JSON, `{"port": N, "openai": URL, "anthropic": URL}`, and serves until its standard input
closes or it is terminated. `answers.json` maps a task to its answers by turn: `{"affine": ["first",
"second"], "*": ["for any other"]}`; the task is the longest key found in the first user message, the turn
is one more than the assistant messages in the request, and the last answer repeats. `calls.jsonl` gets one
fsynced line for each call *before* it is answered: number, path, task, turn, sha256 of the body. `--script`
names a JSON list of replies (`{"kind": "429", "headers": {"retry-after": "0"}}`) used up in order before
the answers; `--every N --kind 500` makes every Nth call fail instead; `--delay S` makes every answer take S
seconds.

Bodies are functions of the request, so equal requests get equal answers, ids included.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers import formats
from tests.servers.formats import FAILURES, Reply
from tests.servers.script import Call, Script, by_answers

__all__ = ["Call", "Reply", "Script", "WireServer", "by_answers"]

OK = Reply()


@dataclass
class _State:
    script: Script
    calls_file: Path | None
    names: Sequence[str]
    calls: list[Call] = field(default_factory=list[Call])
    open: set[socket.socket] = field(default_factory=set[socket.socket])
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def admit(self, path: str, headers: Mapping[str, str], raw: bytes) -> Call:
        body: Any = json.loads(raw or b"{}")
        with self.lock:
            call = Call(len(self.calls) + 1, path, headers, raw, body)
            self.calls.append(call)
            if self.calls_file:
                line = {
                    "number": call.number,
                    "path": path,
                    "task": call.task(self.names),
                    "turn": call.turn,
                    "sha256": hashlib.sha256(raw).hexdigest(),
                }
                with self.calls_file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return call


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: _State

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: tests read `calls`."""

    def setup(self) -> None:
        super().setup()
        with self.state.lock:
            self.state.open.add(self.connection)

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            pass  # the client went away while bytes were waiting
        finally:
            with self.state.lock:
                self.state.open.discard(self.connection)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", "0")))
        call = self.state.admit(self.path, {k.lower(): v for k, v in self.headers.items()}, raw)
        reply = self.state.script(call)
        if not self._wait(3600.0 if reply.kind == "slow" else reply.delay):
            self.close_connection = True
            return
        try:
            self._answer(call, reply)
        except OSError:
            self.close_connection = True

    def _wait(self, seconds: float) -> bool:
        """Wait without deafness: False once the client hung up or the server stops."""
        for _ in range(int(seconds / 0.02)):
            if self.state.stopping.is_set():
                return False
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return False
        return True

    def _answer(self, call: Call, reply: Reply) -> None:
        if reply.kind in FAILURES:
            status, body = formats.failure(call.path, reply, call.headers.get("authorization", ""))
            return self._send(status, "application/json", body, reply.headers)
        if reply.body is not None:
            return self._send(200, "application/json", reply.body.encode(), reply.headers)
        if call.path.endswith("/messages"):
            return self._stream(formats.messages(call.raw, reply), reply)
        make = formats.responses if call.path.endswith("/responses") else formats.chat
        body = json.dumps(make(call.raw, reply)).encode()
        if reply.kind == "malformed":
            body = body[: len(body) // 2]
        if reply.kind == "cut":
            self.close_connection = True
            return self._send(
                200, "application/json", body[: len(body) // 2], reply.headers, length=len(body)
            )
        return self._send(200, "application/json", body, reply.headers)

    def _send(
        self, status: int, kind: str, body: bytes, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[bytes], reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for index, event in enumerate(events):
            if reply.kind == "cut" and index == len(events) // 2:
                self.close_connection = True
                return
            if reply.kind == "stalled" and index == len(events) // 2 and not self._wait(3600.0):
                self.close_connection = True
                return
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of what is tested."""


class WireServer:
    """The service; a context manager. `script`: replies by call (the last repeats) or a function of the
    call."""

    def __init__(
        self,
        script: Script | Sequence[Reply] = (OK,),
        *,
        port: int = 0,
        calls_file: Path | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if not callable(script):
            replies = list(script)

            def by_number(call: Call) -> Reply:
                return replies[min(call.number, len(replies)) - 1]

            script = by_number
        self._state = _State(script, calls_file, names)
        handler = type("Handler", (_Handler,), {"state": self._state})
        self._server = _Server(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> WireServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._state.stopping.set()
        self._server.shutdown()
        with self._state.lock:
            for connection in self._state.open:
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def openai_url(self) -> str:
        """For OpenAI's SDK, whose base URL includes /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """For Anthropic's SDK, which adds /v1 itself."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[Call]:
        """Every request so far, in order of arrival."""
        with self._state.lock:
            return list(self._state.calls)

    @property
    def open_connections(self) -> int:
        with self._state.lock:
            return len(self._state.open)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve as a process of its own."""
    parser = argparse.ArgumentParser(description="A scripted model service on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--kind", default="500")
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args(arguments)
    answers: dict[str, list[str]] = json.loads(given.answers.read_text()) if given.answers else {}
    before = [Reply(**item) for item in json.loads(given.script.read_text())] if given.script else []
    script = by_answers(answers, before, given.every, given.kind, given.delay)
    names = [name for name in answers if name != "*"]
    with WireServer(script, port=given.port, calls_file=given.calls, names=names) as server:
        print(
            json.dumps({"port": server.port, "openai": server.openai_url, "anthropic": server.anthropic_url}),
            flush=True,
        )
        sys.stdin.read()


if __name__ == "__main__":
    main()
