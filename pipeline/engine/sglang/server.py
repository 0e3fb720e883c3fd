"""A server: started on a free port, known to be ours, ready when it has completed a request."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.engine.sglang.arguments import HOST
from pipeline.engine.sglang.client import Client, ServerFault
from pipeline.engine.sglang.extras import setting_in
from pipeline.engine.sglang.gpus import fence, gpus
from pipeline.engine.sglang.log import ServerLog
from pipeline.engine.sglang.process import ProcessGroup

BIND_ATTEMPTS = 5
POLL_S = 0.2
HEALTH_S = 2.0
PARSER_STATUS = 2  # argparse's
WORKER = "sglang::"  # what schedulers and detokenizer begin their names with
PROBE = {"max_new_tokens": 2, "temperature": 0.0, "ignore_eos": True}


@dataclass(frozen=True)
class TimeOuts:
    """How long a server may take, in seconds.

    Attributes:
        start: From launch to a real completion.
        request: For one answer.
        hang: Silence of `/health` while a request runs.
        stop: From SIGTERM to the end of every process; then the group is killed.
        fence: For the GPUs' memory to come back.
    """

    start: float
    request: float
    hang: float
    stop: float
    fence: float


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        command: The whole command for a port.
        environment: Put over this process's own.
        served_name: The name that it must answer under.
        folder: For its log.
        time_outs: How long each wait may be.
        probe_ids: Prompt of the request that shows it ready.
    """

    command: Callable[[int], list[str]]
    environment: Mapping[str, str]
    served_name: str
    folder: Path
    time_outs: TimeOuts
    probe_ids: tuple[int, ...]


class PortTaken(ServerFault):
    """Another process has the port."""


def start_server(launch: Launch) -> Server:
    """Start a server; a port that someone else takes first is left to them.

    Raises:
        ServerFault: It ended, hung, or did not become ready; nothing of it is left.
        ValueError: It refuses its arguments.
    """
    for attempt in range(BIND_ATTEMPTS):
        try:
            return Server(launch, attempt)
        except PortTaken as taken:
            last = taken
    raise ServerFault(f"{BIND_ATTEMPTS} ports in a row were taken; {last}")


class Server:
    """One running server.

    Attributes:
        client: Talks to it.
        log: What it says.
        command: What was launched.
        family: Its processes.
    """

    def __init__(self, launch: Launch, attempt: int) -> None:
        """Start it and wait until it has completed a request.

        Raises:
            ServerFault: It did not; nothing of it is left. `PortTaken` if another port may do.
            ValueError: It refuses its arguments.
        """
        self._launch, self._before = launch, gpus()
        port, path = _free_port(), launch.folder / f"server_{attempt}.log"
        self.command = launch.command(port)
        self.family = ProcessGroup(self.command, launch.environment, path)
        self.log = ServerLog(path)  # follows the file until it is closed
        waits = launch.time_outs
        self.client = Client(port, self.check_alive, waits.request, waits.hang)
        try:
            self._wait_ready(port)
        except ServerFault as fault:
            kind = PortTaken if self.log.bind_failed else type(fault)
            raise kind(f"{fault}{self._stop_after_fault()}") from fault
        except BaseException:
            self.stop()
            raise

    def check_alive(self) -> None:
        """Refuse to wait for a server that is gone, whole or in part.

        Raises:
            ServerFault: It ended, or a process that it needs; the text has its last words.
            ValueError: Its parser refuses the arguments, which it reads before it touches a GPU.
        """
        status = self.family.status
        if status == PARSER_STATUS and (refusal := self.log.refusal):
            raise ValueError(
                f"SGLang refuses its arguments: {refusal}; see {setting_in(refusal)}, and that"
                " engine.version is the installed one"
            )
        if status is not None:
            raise ServerFault(f"the server ended with status {status}: {self.log.cause}")
        if lost := self.family.lost:
            raise ServerFault(f"the server's process {lost} is gone: {self.log.cause}")

    def stop(self) -> None:
        """End every process of the server, and wait for the GPUs' memory; twice does no harm.

        Raises:
            RuntimeError: A process or its memory is still there.
        """
        # A server that is broken or not up yet has nothing to drain, and might never end by itself.
        sound = not self.family.lost and self.client.healthy(HEALTH_S)
        self.family.end(self._launch.time_outs.stop if sound else 0.0)
        self.log.close()
        fence(self._before, self._launch.time_outs.fence)

    def _stop_after_fault(self) -> str:
        """Stop, and say what stays behind: it is added to the fault, which came first."""
        try:
            self.stop()
        except RuntimeError as left:
            return f"; then {left}"
        return ""

    def _wait_ready(self, port: int) -> None:
        """Wait until our own process has completed a request."""
        longest = self._launch.time_outs.start
        deadline = time.monotonic() + longest
        while not self.client.healthy(HEALTH_S):
            self.check_alive()
            self.family.look()
            if time.monotonic() > deadline:
                raise ServerFault(
                    f"not ready within engine.start_timeout_s={longest:g};"
                    f" it was {self.log.phase}: {self.log.cause}"
                )
            time.sleep(POLL_S)
        self._check_ours(port)
        self.family.watch(WORKER)
        body = {"input_ids": list(self._launch.probe_ids), "sampling_params": PROBE}
        answer = self.client.generate(body)
        tokens = answer.get("output_ids")
        if not isinstance(tokens, list) or len(tokens) != PROBE["max_new_tokens"]:
            raise ServerFault(f"the first completion has no tokens: {str(answer)[:200]}")

    def _check_ours(self, port: int) -> None:
        """Refuse another server at our port: it would be measured in place of ours."""
        if not self.family.listens(port):
            raise PortTaken(f"port {port} is answered by a process that is not ours")
        data = self.client.get("/v1/models").get("data")
        entries = data if isinstance(data, list) else []
        models = [model.get("id") for model in entries if isinstance(model, dict)]
        if models != [self._launch.served_name]:
            raise PortTaken(f"port {port} serves {models}, not {self._launch.served_name}")


def _free_port() -> int:
    """Return a port that is free now; someone else may still be faster."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
