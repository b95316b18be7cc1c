"""A small HTTP server and client."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, "dict[str, Any] | str | Iterable[str]"]
Handle = Callable[[str, Any], Answer]
"""Path and JSON body (None for GET) to status and body: JSON, text, or the parts of an event stream."""


class Handler(BaseHTTPRequestHandler):
    """Answers with what `handle` gives."""

    protocol_version = "HTTP/1.1"
    handle_request: Handle

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        status, found = type(self).handle_request(self.path, body)
        if isinstance(found, (dict, str)):
            kind = "application/json" if isinstance(found, dict) else "text/plain; charset=utf-8"
            data = (json.dumps(found) if isinstance(found, dict) else found).encode()
            self._head(status, {"Content-Type": kind, "Content-Length": str(len(data))})
            self.wfile.write(data)
            return
        self.close_connection = True
        self._head(status, {"Content-Type": "text/event-stream", "Connection": "close"})
        for part in found:
            self.wfile.write(f"data: {part}\n\n".encode())

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        pass  # a client that has gone


def serve(host: str, port: int, handle: Handle) -> int:
    """Serve in the background; returns the port."""
    own = type("Own", (Handler,), {"handle_request": staticmethod(handle)})
    server = Server((host, port), own)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return int(server.server_address[1])


def post(address: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Send JSON to `host:port`; raises OSError or HTTPException when the other side is gone."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
