"""A user's own server arguments: welcome, unless they contradict the cell's label or are unsafe."""

from __future__ import annotations

import re
from collections.abc import Sequence

SHORTEST_ABBREVIATION = 9  # shorter ones, such as --enable, fit too many options to be taken

# These turn on NVLink multicast, whatever the environment says.
FORBIDDEN = {
    "enable-nccl-nvls": "it turns on NVLink multicast",
    "enable-symm-mem": "it turns on NVLink multicast",
    "enable-torch-symm-mem": "it uses NVLink multicast",
    "enable-mscclpp": "it uses NVLink multicast",
    "flashinfer-allreduce-fusion-backend": "mnnvl and auto may create NVLink multicast, and"
    " verify=fused_allreduce passes trtllm by itself",
    "enable-flashinfer-allreduce-fusion": "it means auto, which may create NVLink multicast;"
    " use verify=fused_allreduce",
}
# Each of these is decided by a part of the cell, which would then be labelled wrongly.
_DECIDED = {
    "attention-backend": "engine.attention",
    "prefill-attention-backend": "engine.attention",
    "decode-attention-backend": "engine.attention",
    "page-size": "engine.page_size",
    "mem-fraction-static": "engine.mem_fraction",
    "max-total-tokens": "engine.max_total_tokens",
    "load-format": "engine.load_format",
    "context-length": "engine.context_length",
    "max-running-requests": "parallelism.batch",
    "tp-size": "parallelism.tp",
    "tensor-parallel-size": "parallelism.tp",
    "tp": "parallelism.tp",
    "random-seed": "sampling.seed",
    "dtype": "target.dtype",
    "revision": "target.revision",
    "trust-remote-code": "target.trust_remote_code",
    "model-path": "target",
    "model": "target",
    "disable-custom-all-reduce": "verify.allreduce",
}
_DECIDED_PREFIXES = {
    "speculative": "drafter",
    "cuda-graph": "verify",
    "disable-cuda-graph": "verify",
    "disable-decode-cuda-graph": "verify",
    "disable-prefill-cuda-graph": "verify",
    "enforce-disable-flashinfer-allreduce-fusion": "verify",
    "disable-radix-cache": "engine",
    "enable-metrics": "engine",
    "host": "engine",
    "port": "engine",
    "served-model-name": "engine",
    "skip-": "engine",
    "use-ray": "launcher",
    "config": "engine",
    "nnodes": "engine",
    "dp-size": "engine",
    "data-parallel-size": "engine",
    "pp-size": "parallelism.tp",
    "pipeline-parallel-size": "parallelism.tp",
    "enable-deterministic-inference": "verify",
}


# Begin like something that the drafter decides, but change neither its name nor its tokens.
_ALLOWED = {
    "speculative-draft-attention-backend",
    "speculative-draft-model-quantization",
    "speculative-draft-model-revision",
}


def checked_extras(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments as they are.

    Raises:
        ValueError: One is forbidden, contradicts a part of the cell, or is no long option.
    """
    given = [a for a in arguments if a.startswith("-") and not _is_number(a)]
    if arguments and not arguments[0].startswith("--"):
        raise ValueError(
            f"engine.extra_args={list(arguments)}: begin with an option, such as --watchdog-timeout"
        )
    for argument in given:
        _check_option(argument)
    return tuple(arguments)


def setting_in(refusal: str) -> str:
    """Return the setting behind the first option that a parser's refusal names."""
    found = re.search(r"--([\w-]+)", refusal)
    option = found.group(1) if found else ""
    return _decided(option) or "engine.extra_args"


def _check_option(argument: str) -> None:
    option, _, _ = argument.removeprefix("--").partition("=")
    option = option.replace("_", "-")
    if not argument.startswith("--"):
        raise ValueError(f"engine.extra_args: {argument}: use the long name of an option")
    if reason := _named(option, FORBIDDEN):
        raise ValueError(f"engine.extra_args: --{option} is refused: {reason}; leave it out")
    if option in _ALLOWED:
        return
    if part := _decided(option):
        raise ValueError(
            f"engine.extra_args: --{option} is decided by the cell; set {part} instead of it"
        )


def _decided(option: str) -> str | None:
    """Return the part of a cell that decides an option."""
    return _named(option, _DECIDED) or next(
        (part for prefix, part in _DECIDED_PREFIXES.items() if option.startswith(prefix)), None
    )


def _named(option: str, names: dict[str, str]) -> str | None:
    """Return what stands at the option; argparse completes beginnings, so these count too."""
    if option in names:
        return names[option]
    if len(option) < SHORTEST_ABBREVIATION:
        return None
    return next((text for name, text in names.items() if name.startswith(option)), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
