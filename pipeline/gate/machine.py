"""The machine a run was measured on: its class, and whether it is the very same one."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping

from pipeline.machine.provenance import MACHINE, provenance

SAME = (*MACHINE, "memory_gib", "platform", "driver")


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
