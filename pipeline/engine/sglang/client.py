"""Plain HTTP to a server on loopback; every wait ends, and says what it waited for."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.config.messages import folded, one_line
from pipeline.engine.sglang.arguments import HOST

POLL_S = 0.05
MOST_BYTES = 64 << 20  # an answer with two log-probabilities a token takes 150 bytes of each


class ServerFault(RuntimeError):
    """The server died, hangs, or answered with an error; the text is one line."""


@dataclass(frozen=True)
class Client:
    """Talks to one server.

    Attributes:
        port: Where it listens on loopback.
        alive: Raises `ServerFault` if the process is gone.
        request_timeout_s: Longest answer to a request.
        hang_timeout_s: Longest silence of `/health` while a request runs.
    """

    port: int
    alive: Callable[[], None]
    request_timeout_s: float
    hang_timeout_s: float

    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; streaming is off, so that tokens are counted and never chunks.

        Raises:
            ServerFault: No answer came, or an error.
        """
        answer = _object(self._watched("POST", "/generate", body | {"stream": False}), "/generate")
        if "meta_info" not in answer:
            raise ServerFault(f"/generate answered {folded(answer)[:200]}")
        return answer

    def get(self, path: str) -> dict[str, Any]:
        """Return a page's JSON object.

        Raises:
            ServerFault: No answer came, or an error.
        """
        return _object(self._watched("GET", path), path)

    def metrics(self) -> str:
        """Return the Prometheus page."""
        return self._watched("GET", "/metrics")

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Send a command."""
        self._watched("POST", path, body)

    def flush(self) -> None:
        """Forget cached prompts and what n-gram learnt; waits until nothing runs any more.

        Raises:
            ServerFault: Something still runs, or no answer came.
        """
        deadline = time.monotonic() + self.hang_timeout_s
        while True:
            try:
                status, text = exchange(
                    self.port, "POST", "/flush_cache", None, self.hang_timeout_s
                )
            except ServerFault:
                self._alive_soon()
                raise
            if status == http.HTTPStatus.OK:
                return
            self.alive()
            if time.monotonic() > deadline:
                raise ServerFault(f"/flush_cache refused for {self.hang_timeout_s:g} s: {text}")
            time.sleep(POLL_S)

    def healthy(self, timeout_s: float) -> bool:
        """Whether `/health` answers in time."""
        try:
            return exchange(self.port, "GET", "/health", None, timeout_s)[0] == http.HTTPStatus.OK
        except ServerFault:
            return False

    def _watched(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """Exchange while watching the process and its health."""
        box: list[tuple[int, str] | ServerFault] = []
        longest = self.request_timeout_s + self.hang_timeout_s  # `_wait` ends the wait before

        def work() -> None:
            try:
                box.append(exchange(self.port, method, path, body, longest))
            except ServerFault as fault:
                box.append(fault)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._wait(thread, path)
        answer = box[0]
        if isinstance(answer, ServerFault):
            self._alive_soon()
            raise answer
        status, text = answer
        if status != http.HTTPStatus.OK:
            raise ServerFault(f"{path} answered {status}: {folded(text)[:300]}")
        return text

    def _alive_soon(self) -> None:
        """Say why a server is gone: it closes its socket before it is seen dead."""
        time.sleep(POLL_S)
        self.alive()

    def _wait(self, thread: threading.Thread, path: str) -> None:
        """Wait for the answer; a dead or silent server ends the wait.

        Health is asked seldom: the server answers that while it is measured.
        """
        began = asked = time.monotonic()
        while True:
            thread.join(min(self.hang_timeout_s / 4, 1.0))
            if not thread.is_alive():
                return
            self.alive()
            now = time.monotonic()
            if now - began > self.request_timeout_s:
                raise ServerFault(
                    f"{path} took more than engine.request_timeout_s={self.request_timeout_s:g}"
                )
            if now - asked < self.hang_timeout_s / 4:
                continue
            if not self.healthy(self.hang_timeout_s):
                self.alive()
                raise ServerFault(
                    f"the server hangs: /health is silent for"
                    f" engine.hang_timeout_s={self.hang_timeout_s:g} during {path}"
                )
            asked = time.monotonic()


def _object(text: str, path: str) -> dict[str, Any]:
    """Return the object that a page is.

    Raises:
        ServerFault: It is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if not isinstance(value, dict):
        raise ServerFault(f"{path} answered {folded(value)[:200]}")
    return value


def exchange(
    port: int, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> tuple[int, str]:
    """Return an answer's status and text.

    Raises:
        ServerFault: There was none.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, text, headers)
        with connection.getresponse() as response:
            data = response.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ServerFault(f"{path} answered more than {MOST_BYTES >> 20} MiB")
        return response.status, data.decode(errors="replace")
    except TimeoutError:
        raise ServerFault(f"{path} did not answer within {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ServerFault(f"{path}: no answer ({one_line(error)})") from None
    finally:
        connection.close()
