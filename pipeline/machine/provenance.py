"""Record where numbers come from: code, packages and machine, and when two machines are the same.

`provenance` returns the facts that a sweep keeps, as flat text. `machine_class` picks those that
machines of one kind share, `fingerprint` hashes those that absolute times need to be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

PACKAGES = ("specroi", "torch", "hydra-core", "ray", "mlflow", "datasets", "tokenizers", "sglang")
MACHINE = ("cpu", "cores", "gpus")  # cells measured on machines that differ here have no ratio
SAME = (*MACHINE, "memory_gib", "platform", "driver")


def provenance() -> dict[str, str]:
    """Return commit, versions and hardware as flat text; what cannot be known is left out."""
    return _code() | _packages() | _machine() | _gpus()


def _code() -> dict[str, str]:
    """Commit of the source folder, and whether tracked files differ from it."""
    here = Path(__file__).parent
    commit = _output("git", "-C", str(here), "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _output("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": str(bool(changed)).lower()}


def _packages() -> dict[str, str]:
    """Versions of the packages that can change a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[f"version.{name}"] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, str]:
    """Name of the CPU, cores that this process may use, memory."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.0f}",
    }


def _cpu_name() -> str:
    """Return the model name of the first CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _gpus() -> dict[str, str]:
    """Names of the GPUs and their driver; empty without any."""
    fields = "--query-gpu=name,driver_version"
    rows = _output("nvidia-smi", fields, "--format=csv,noheader").splitlines()
    if not rows:
        return {"gpus": "none"}
    names = [row.rsplit(",", 1)[0].strip() for row in rows]
    return {"gpus": ", ".join(names), "driver": rows[0].rsplit(",", 1)[1].strip()}


def _output(*command: str) -> str:
    """Return what a command prints, or nothing if it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine_class(facts: Mapping[str, str]) -> dict[str, str]:
    """Return what machines of one class share: processor, cores and GPUs."""
    return {name: facts.get(name, "") for name in MACHINE}


def class_digest(facts: Mapping[str, str]) -> str:
    """Return a short name of a machine's class, for tags."""
    return _digest(machine_class(facts))


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return what only runs on the very same machine, in the same state, share.

    Absolute times are compared under one fingerprint alone; the machine's name is in it as a hash.
    """
    return _digest({name: facts.get(name, "") for name in SAME} | {"node": platform.node()})


def here() -> dict[str, str]:
    """Return the facts of this machine and this code, with the fingerprint."""
    facts = provenance()
    return facts | {"fingerprint": fingerprint(facts)}


def _digest(facts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
