"""A server is ready when our own process has completed a request, and not before."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.engine.sglang import server as module
from pipeline.engine.sglang.client import ServerFault
from tests.pipeline.engine.sglang.prompts import PROMPTS


@contextlib.contextmanager
def stranger():
    """Another server on loopback, sound by every sign; gives its port and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Say nothing."""

        def do_GET(self):
            asked.append(self.path)
            text = json.dumps({"data": [{"id": "specroi-of-someone-else"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_healthy_server_is_not_ready_until_it_has_completed_a_request(cell, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "completes_late")
    began = time.monotonic()
    session = cell.engine.start(cell)
    took = time.monotonic() - began
    session.close()
    assert took > 1, "the first completion takes a second, health none"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("completes_nothing", "the first completion has no tokens"),
        ("refuses_to_complete", "/generate answered 503: no model is loaded yet"),
    ],
)
def test_a_healthy_server_that_completes_nothing_never_becomes_ready(
    cell, monkeypatch, fault, message
):
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(ServerFault, match=message):
        cell.engine.start(cell)


def test_a_strangers_server_that_answers_at_our_port_is_asked_for_no_token(
    cell, started, monkeypatch
):
    free, given = module._free_port, []

    with stranger() as (taken, asked):

        def port():
            given.append(free() if given else taken)
            return given[-1]

        monkeypatch.setattr(module, "_free_port", port)
        session = started(cell)
        assert (given[0], session.server.client.port) == (taken, given[-1])
        assert len(given) > 1, "the stranger keeps its port"
        assert session.generate(PROMPTS[0], 0).finish == "length"
        assert set(asked) == {"/health"}


def test_a_stranger_at_every_port_fails_the_cell(cell, monkeypatch):
    with stranger() as (taken, asked):
        monkeypatch.setattr(module, "_free_port", lambda: taken)
        with pytest.raises(ServerFault, match="5 ports in a row were taken"):
            cell.engine.start(cell)
        assert "/generate" not in asked
