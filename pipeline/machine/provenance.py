"""Record where numbers come from: code, packages and machine, and when two machines are the same.

`provenance` returns the facts that a sweep keeps, as flat text. `machine_class` picks those that
machines of one kind share, `fingerprint` hashes those that absolute times need to be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

PACKAGES = ("specroi", "torch", "hydra-core", "ray", "mlflow", "datasets", "tokenizers", "sglang")
MACHINE = ("cpu", "cores", "gpus")  # cells measured on machines that differ here have no ratio
UNKNOWN = "unknown"  # how a fact begins that could not be learned; the reason follows
OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
SAME = (*MACHINE, "memory_gib", "platform", "driver")


def provenance() -> dict[str, str]:
    """Return commit, versions and hardware as flat text; a package that is absent is left out."""
    return _code() | _packages() | _machine() | _gpus()


def _code() -> dict[str, str]:
    """Return the commit of the source folder, and whether tracked files differ from it.

    What git does not tell is `unknown (REASON)`: a commit that is silently absent, or a change
    that is silently denied, would let two codes pass for one.
    """
    source = Path(__file__)
    try:
        commit = git(source.parent, "rev-parse", "--verify", "HEAD")
        if not git(source.parent, "ls-files", source.name):
            return {"commit": f"{UNKNOWN} (the git repository around it does not hold this code)"}
    except GitFailed as reason:
        return {"commit": f"{UNKNOWN} ({reason})"}
    try:
        changed = git(source.parent, "status", "--porcelain", "--untracked-files=no")
    except GitFailed as reason:
        return {"commit": commit.decode().strip(), "dirty": f"{UNKNOWN} ({reason})"}
    return {"commit": commit.decode().strip(), "dirty": str(bool(changed)).lower()}


def known_commit(facts: Mapping[str, str]) -> str:
    """Return the commit that a provenance names, or "" where it is unknown."""
    commit = facts.get("commit", "")
    return "" if commit.startswith(UNKNOWN) else commit


class GitFailed(Exception):
    """Git could not do what it was asked; the text is git's own reason, one line."""


def git(folder: Path, *command: str, timeout_s: float = 20) -> bytes:
    """Run git in a folder and return what it prints.

    Variables that a hook sets are left out, since they name another repository, and nobody is
    asked for a password.

    Args:
        folder: Where git is run; it looks for the repository from there upward.
        *command: The command and its arguments.
        timeout_s: Longest run; some commands fetch what a partial clone lacks.

    Raises:
        GitFailed: Git is missing, refuses, fails or hangs.
    """
    environment = {k: v for k, v in os.environ.items() if k not in OF_A_HOOK}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=environment | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )
    except FileNotFoundError:
        raise GitFailed("git is not installed") from None
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git {command[0]} did not end within {timeout_s:g} s") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        said = re.sub(r"://[^/@\s]+@", "://***@", said)  # a remote's address may hold a password
        raise GitFailed(said or f"git {command[0]} ended with status {done.returncode}")
    return done.stdout


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
