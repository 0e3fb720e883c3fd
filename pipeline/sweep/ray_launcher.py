"""Run each cell in a fresh process of Ray, on this machine or a cluster, and watch that process.

`RayLauncher` opens Ray and starts a `RayWorker` for a cell; the worker sends it one phase at a
time and turns a death or a hang into a reason of one line. Ray is imported in this module alone,
and only when it is used: it reads on import where it may listen. `pipeline.sweep.scheduler` decides
what is measured when.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline.config.instantiate import check_positive
from pipeline.config.messages import one_line
from pipeline.machine.reaper import CELL_MARK, KEEP_ENVIRONMENT, SWEEP_MARK, kill_marked
from pipeline.sweep.cell_process import CellProcess
from pipeline.sweep.workers import WorkerFailed

LOCAL = "local"
OBJECT_STORE_BYTES = 80 * 2**20  # Ray's least is 75 MB; prompts and responses are small
SPAWN_TIMEOUT_S = 60.0
LOCAL_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",  # it would hold messages back until after the sweep
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: listen on loopback alone
}
QUIET = {
    "OMP_WAIT_POLICY": "passive",  # waiting threads sleep: cells share the cores while idle
    "GOMP_SPINCOUNT": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
INHERITED = ("SPECROI_CACHE", SWEEP_MARK, "HF_HUB_OFFLINE", "HF_HOME")  # a cluster has not these
DEATH_TIMEOUT_S = 10.0
TOO_LATE = {  # by phase: the setting that limits it, and how else to stay within it
    "start": "; raise launcher.start_timeout_s above that",
    "warm_up": "; raise launcher.start_timeout_s above that",
    "answer": "; raise launcher.repetition_timeout_s, which limits a turn (a prompt, or all prompts"
    " of a server), or lower sampling.max_new_tokens",
}


@dataclass(frozen=True)
class RayLauncher:
    """Where cells run and how long they may take.

    Attributes:
        address: `local` starts Ray on this machine for the sweep; `auto` or `host:port` joins a
            cluster that runs.
        resident: Most cells that are loaded at once and measured in turns.
        cpus_per_cell: CPUs that Ray reserves for a cell. 0 lets cells of one machine wait for
            their turn loaded; turns keep them apart.
        gpus_per_cell: GPUs that Ray reserves for a cell; 0 is what the engine asks for.
        start_timeout_s: Longest warm-up, and longest start; an engine's own time-out goes before
            it if it is longer.
        repetition_timeout_s: Longest turn: one prompt, or a repetition's prompts all together
            where an engine takes its machine whole.
        on_busy: `wait` or `refuse` when another sweep runs on this machine.
    """

    address: str = LOCAL
    resident: int = 8
    cpus_per_cell: float = 0
    gpus_per_cell: int = 0
    start_timeout_s: float = 1800
    repetition_timeout_s: float = 1800
    on_busy: str = "refuse"

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("resident", "start_timeout_s", "repetition_timeout_s"):
            check_positive(f"launcher.{name}", getattr(self, name))
        for name in ("cpus_per_cell", "gpus_per_cell"):
            if getattr(self, name) != 0:
                check_positive(f"launcher.{name}", getattr(self, name))
        if self.on_busy not in ("wait", "refuse"):
            raise ValueError(f"launcher.on_busy={self.on_busy}: must be wait or refuse")

    @contextlib.contextmanager
    def connect(self) -> Iterator[int]:
        """Run Ray, or join it, for the time of a sweep; gives the number of GPUs there.

        Raises:
            ValueError: There is no cluster at the address.
        """
        where: dict[str, Any] = {"address": self.address}
        if self.address == LOCAL:
            os.environ |= LOCAL_RAY
            where |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        import ray
        from ray.exceptions import RayError

        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RayError, RuntimeError) as error:  # the last: other versions
            raise ValueError(
                f"launcher.address={self.address}: no Ray cluster to join ({one_line(error)});"
                " start one with `ray start --head` of this interpreter, or use"
                " launcher.address=local"
            ) from None
        try:
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            yield int(resources.get("GPU", 0))
        finally:
            ray.shutdown()

    def spawn(self, mark: str, gpus: int, log: Path) -> RayWorker:
        """Start a fresh worker process.

        Args:
            mark: Unique text that the worker's own children inherit.
            gpus: What the engine asks for; `gpus_per_cell` goes before it.
            log: File for the worker's output.

        Raises:
            WorkerFailed: No process came up.
        """
        import ray

        threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        inherited = {k: v for k in INHERITED if (v := os.environ.get(k))}
        environment = QUIET | {"OMP_NUM_THREADS": threads, CELL_MARK: mark} | inherited
        is_local = self.address == LOCAL
        actor = ray.remote(CellProcess).options(
            num_cpus=self.cpus_per_cell,
            num_gpus=self.gpus_per_cell or gpus,
            max_restarts=0,
            runtime_env={} if is_local else {"env_vars": _joined(mark)},
        )
        worker = RayWorker(actor.remote(environment, log, Path.cwd()), mark, is_local)
        worker.begin("pid")
        try:
            worker.pid = worker.result(SPAWN_TIMEOUT_S)
        except WorkerFailed as failure:
            worker.kill()
            raise WorkerFailed(
                f"no worker process came up ({failure}); launcher.cpus_per_cell and GPUs must be"
                f" free at launcher.address={self.address}"
            ) from None
        return worker


def _joined(mark: str) -> dict[str, str]:
    """Return what a worker on a cluster that runs must have from its first moment.

    Its processes have the environment and the folder of `ray start`, which may be others than the
    driver's: it could not even import the cell. Marked like this, all that it forks is found, too.
    """
    out = {KEEP_ENVIRONMENT: "1", CELL_MARK: mark}
    if sweep := os.environ.get(SWEEP_MARK):
        out[SWEEP_MARK] = sweep
    if ours := os.environ.get("PYTHONPATH"):
        places = [str(Path(place).absolute()) for place in ours.split(os.pathsep)]
        out["PYTHONPATH"] = os.pathsep.join([*places, "${PYTHONPATH}"])  # Ray fills in the rest
    return out


class RayWorker:
    """A cell's process, seen from the driver.

    Attributes:
        pid: The process's id, once it has answered; -1 before.
    """

    def __init__(self, actor: Any, mark: str, is_local: bool) -> None:
        """Remember the actor; its process is still on its way."""
        self.pid = -1
        self._actor = actor
        self._mark = mark
        self._is_local = is_local
        self._phase = ""
        self._pending: Any = None

    def begin(self, phase: str, *arguments: Any) -> None:
        """Begin a phase of `CellProcess` without waiting for it."""
        self._phase = phase
        self._pending = getattr(self._actor, phase).remote(*arguments)

    def result(self, timeout_s: float) -> Any:
        """Wait for the phase's result.

        Raises:
            WorkerFailed: It raised, its process died, or it did not finish in time.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        try:
            return ray.get(self._pending, timeout=timeout_s)
        except GetTimeoutError:
            way_out = TOO_LATE.get(self._phase, "")
            raise WorkerFailed(
                f"{self._phase} did not finish within {timeout_s:g} s{way_out}"
            ) from None
        except RayTaskError as error:
            raise WorkerFailed(f"{self._phase} raised {one_line(error.cause)}") from None
        except RayError as error:  # of memory that ran out, Ray says so in one of its own
            raise WorkerFailed(
                f"process {self.pid} died in {self._phase}: {_cause(error)}"
            ) from None

    def kill(self) -> None:
        """End the process and everything that it started."""
        import ray

        family = self._family() if self._is_local else []
        ray.kill(self._actor, no_restart=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=DEATH_TIMEOUT_S)
        kill_marked(f"{CELL_MARK}={self._mark}")  # orphans, in whatever process group

    def _family(self) -> list[psutil.Process]:
        """The process and its descendants, as far as they are alive."""
        try:
            worker = psutil.Process(self.pid)
            return [worker, *worker.children(recursive=True)]
        except (psutil.NoSuchProcess, ValueError):
            return []


def _cause(error: BaseException) -> str:
    """Say what Ray knows of a process's death; it sees no exit status."""
    from ray.exceptions import RayActorError

    if "low on memory" in str(error):
        return "Ray killed it because the machine's memory was nearly full"
    if not isinstance(error, RayActorError):
        return one_line(error)
    return "killed from outside, out of memory, or crashed; its log may say more"
