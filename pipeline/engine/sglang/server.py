"""A server's process: started in its own group, known to be ours, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipeline.engine.sglang.arguments import HOST
from pipeline.engine.sglang.client import Client, ServerFault
from pipeline.engine.sglang.gpus import fence, gpus
from pipeline.engine.sglang.log import ServerLog

BIND_ATTEMPTS = 5
POLL_S = 0.2
HEALTH_S = 2.0
KILL_S = 20.0
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


class PortTaken(ServerFault):
    """Another process answers at the port."""


class Server:
    """One running server.

    Attributes:
        client: Talks to it.
        log: What it says.
        command: What was launched.
        family: Its processes, as far as they have been seen.
    """

    def __init__(
        self,
        command: Callable[[int], list[str]],
        environment: Mapping[str, str],
        served_name: str,
        folder: Path,
        time_outs: TimeOuts,
        probe_ids: tuple[int, ...],
    ) -> None:
        """Start it and wait until it has completed a request.

        Args:
            command: The whole command for a port.
            environment: Put over this process's own.
            served_name: The name that it must answer under.
            folder: For its log.
            time_outs: How long each wait may be.
            probe_ids: Prompt of the request that shows it ready.

        Raises:
            ServerFault: It ended, hung, or did not become ready; nothing of it is left.
        """
        self._served_name, self._time_outs = served_name, time_outs
        self._before = gpus()
        self.family: list[psutil.Process] = []
        for attempt in range(BIND_ATTEMPTS):
            port = _free_port()
            self.command = command(port)
            self.log = ServerLog(folder / f"server_{attempt}.log")
            self._launch(environment, folder / f"server_{attempt}.log")
            self.client = Client(port, self.check_alive, time_outs.request, time_outs.hang)
            try:
                self._wait_ready(port, probe_ids)
                return
            except ServerFault as fault:
                taken = isinstance(fault, PortTaken) or self.log.bind_failed
                self._stop_after(fault)
                if not taken:
                    raise
                last = fault
            except BaseException:
                self.stop()
                raise
        raise ServerFault(f"{BIND_ATTEMPTS} ports in a row were taken; {last}")

    def check_alive(self) -> None:
        """Refuse to wait for a server that is gone.

        Raises:
            ServerFault: It ended; the text has its last words.
        """
        code = self._process.poll()
        if code is not None:
            raise ServerFault(f"the server ended with status {code}: {self.log.cause}")

    def stop(self) -> None:
        """End every process of the server, and wait for the GPUs' memory; twice does no harm.

        Raises:
            RuntimeError: A process or its memory is still there.
        """
        self._note_family()
        if self._process.poll() is None:
            self._signal_group(signal.SIGCONT)  # a stopped process would not see the other one
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self._time_outs.stop)
        self._signal_group(signal.SIGKILL)
        for process in self.family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(KILL_S)
        self.log.close()
        deadline = time.monotonic() + KILL_S
        while alive := [process for process in self.family if _is_alive(process)]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of the server cannot be killed: {alive}")
            time.sleep(POLL_S / 10)
        fence(self._before, self._time_outs.fence)

    def _stop_after(self, fault: ServerFault) -> None:
        """Stop; what stays behind is added to the fault, which came first."""
        try:
            self.stop()
        except RuntimeError as left:
            raise ServerFault(f"{fault}; then {left}") from fault

    def _launch(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the process at the head of a group of its own."""
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                self.command,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.family = []

    def _wait_ready(self, port: int, probe_ids: tuple[int, ...]) -> None:
        """Wait until our own process has completed a request."""
        deadline = time.monotonic() + self._time_outs.start
        while not self.client.healthy(HEALTH_S):
            self.check_alive()
            self._note_family()
            if time.monotonic() > deadline:
                raise ServerFault(
                    f"not ready within engine.start_timeout_s={self._time_outs.start:g};"
                    f" it was {self.log.phase}: {self.log.cause}"
                )
            time.sleep(POLL_S)
        self._check_ours(port)
        answer = self.client.generate({"input_ids": list(probe_ids), "sampling_params": PROBE})
        if len(answer.get("output_ids", ())) != PROBE["max_new_tokens"]:
            raise ServerFault(f"the first completion has no tokens: {str(answer)[:200]}")

    def _check_ours(self, port: int) -> None:
        """Refuse another server at our port: it would be measured in place of ours."""
        self._note_family()
        if not any(_listens(process, port) for process in self.family):
            raise PortTaken(f"port {port} is answered by a process that is not ours")
        models = [model.get("id") for model in self.client.get("/v1/models").get("data", [])]
        if models != [self._served_name]:
            raise PortTaken(f"port {port} serves {models}, not {self._served_name}")

    def _note_family(self) -> None:
        """Remember the server's processes while their parents are there."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            known = {process.pid for process in self.family}
            found = [root, *root.children(recursive=True)]
            self.family += [process for process in found if process.pid not in known]

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _free_port() -> int:
    """Return a port that is free now; someone else may still be faster."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process still holds anything; a zombie only waits for its parent."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _listens(process: psutil.Process, port: int) -> bool:
    """Whether a process listens at a port."""
    try:
        connections = process.net_connections(kind="tcp")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
