"""A training run on disk: everything that the next step depends on, in one safetensors file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.optim import AdamW

from drafters.eagle3.train.ttt import Learner

STATE = "state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def identity(facts: dict[str, Any]) -> str:
    """Return a hash of what a run must share with the one that it goes on from."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def save_state(
    folder: Path, learner: Learner, optimizer: AdamW, step: int, facts: dict[str, Any]
) -> None:
    """Write the state after `step` steps, whole or not at all.

    The order of batches follows from seed and step, and nothing else is drawn, so that no random
    state is needed.
    """
    tensors = {f"weight.{name}": part.detach() for name, part in learner.named_parameters()}
    tensors["scale"] = learner.scale
    for name, part in learner.named_parameters():
        kept = optimizer.state.get(part)
        if kept:
            tensors |= {f"{moment}.{name}": kept[moment] for moment in _MOMENTS}
    partial = folder / f"{STATE}.partial"
    metadata = {"step": str(step), "identity": identity(facts)}
    save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, partial, metadata)
    partial.replace(folder / STATE)


def load_state(folder: Path, learner: Learner, optimizer: AdamW, facts: dict[str, Any]) -> int:
    """Take up the state of a stopped run; return the steps that it had done, 0 if there is none.

    Raises:
        ValueError: The state is damaged, or of a run with other settings.
    """
    path = folder / STATE
    if not path.is_file():
        return 0
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to start again") from None
    if metadata["identity"] != identity(facts):
        raise ValueError(
            f"{path} is of a run with other settings or data; give another folder, or delete it"
        )
    step = int(metadata["step"])
    with torch.no_grad():
        learner.scale.copy_(tensors["scale"])
        for name, part in learner.named_parameters():
            part.copy_(tensors[f"weight.{name}"])
            moments = {moment: tensors[f"{moment}.{name}"].to(part.device) for moment in _MOMENTS}
            optimizer.state[part] = {"step": torch.tensor(float(step)), **moments}
    return step
