"""What a server answers is bounded, and an object."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipeline.engine.sglang import client
from pipeline.engine.sglang.client import Client, ServerFault


@pytest.fixture
def served():
    """A server that answers with what it is given; its port."""
    servers = []

    def serve(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                try:
                    for piece in answer():
                        self.wfile.write(piece)
                except OSError:
                    pass  # the reader left

            def log_message(self, *_):
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return Client(servers[-1].server_port, lambda: None, 60, 60)

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_endless_answer_is_left_at_the_bound(served, monkeypatch):
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
    sent = []

    def gigabyte():
        for _ in range(1024):
            sent.append(1)
            yield b"x" * (1 << 20)

    with pytest.raises(ServerFault, match=r"^/metrics answered more than 1 MiB$"):
        served(gigabyte).metrics()
    assert len(sent) < 1024


@pytest.mark.parametrize("page", [b"<html>", b"[1]", b"[" * 10**6, b"9" * 10**5, b"\xff"])
def test_a_page_that_is_no_object_is_one_line(served, page):
    with pytest.raises(ServerFault, match=r"^/server_info answered ") as refusal:
        served(lambda: [page]).get("/server_info")
    assert len(str(refusal.value)) < 300
