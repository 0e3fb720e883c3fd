"""A user's own server arguments: welcome, unless they contradict the cell's label or are unsafe."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.engine.sglang.options import OptionRefused, check_words, completed, names_option

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
    "api-key": "a secret has no place in a cell, and the server listens on loopback alone",
    "admin-api-key": "a secret has no place in a cell, and the server listens on loopback alone",
    "ssl-keyfile-password": "a secret has no place in a cell, and the server listens on loopback"
    " alone",
    "help": "it prints the options and ends the server",
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


def checked_extras(arguments: Sequence[str], version: str) -> tuple[str, ...]:
    """Return the arguments as they are.

    SGLang's parser completes the beginning of an option, so each beginning counts as the whole.

    Args:
        arguments: Words, as on a command line.
        version: Whose options are known.

    Raises:
        ValueError: One is forbidden, contradicts a part of the cell, or is no long option; or the
            version's parser would refuse them.
    """
    if arguments and not arguments[0].startswith("--"):
        raise ValueError(
            f"engine.extra_args={list(arguments)}: begin with an option, such as --watchdog-timeout"
        )
    try:
        for word in arguments:
            if names_option(word) and not _is_number(word):
                _check_option(word, version)
        check_words(arguments, version)
    except OptionRefused as refused:
        raise ValueError(f"engine.extra_args: {refused}") from None
    return tuple(arguments)


def check_arguments(words: Sequence[str], extra: Sequence[str], version: str) -> None:
    """Refuse a whole command that a version's parser would refuse.

    Args:
        words: All words, the extra ones at the end.
        extra: The user's own among them, which are sound by themselves.
        version: Whose options are known.

    Raises:
        ValueError: With the setting behind the option.
    """
    own = words[: len(words) - len(extra)]
    try:
        check_words(own, version)
    except OptionRefused as refused:
        setting = _decided(refused.option.removeprefix("--")) or "engine"
        raise ValueError(f"{setting}: {refused}") from None
    try:
        check_words(words, version)
    except OptionRefused as refused:
        raise ValueError(
            f"engine.extra_args: {refused.option} is passed by this engine already; leave it out"
        ) from None


def setting_in(refusal: str) -> str:
    """Return the setting behind the first option that a parser's refusal names."""
    found = re.search(r"--([\w-]+)", refusal)
    option = found.group(1) if found else ""
    return _decided(option) or "engine.extra_args"


def _check_option(word: str, version: str) -> None:
    """Refuse what a word names or begins, whether or not this version has it."""
    if not word.startswith("--"):
        raise ValueError(f"engine.extra_args: {word}: use the long name of an option")
    name = word.removeprefix("--").partition("=")[0].replace("_", "-")
    _check_names([name])
    option = completed(word, version)
    _check_names([spelling.removeprefix("--") for spelling in option.names])
    if "_" in word.partition("=")[0]:
        raise OptionRefused(word.partition("=")[0], f"SGLang writes {option.names[0]}")


def _check_names(names: Sequence[str]) -> None:
    """Refuse an option, known by all its spellings, that is unsafe or decided elsewhere."""
    for name in names:
        if reason := FORBIDDEN.get(name):
            raise ValueError(f"engine.extra_args: --{name} is refused: {reason}; leave it out")
    if any(name in _ALLOWED for name in names):
        return
    for name in names:
        if part := _decided(name):
            raise ValueError(
                f"engine.extra_args: --{name} is decided by the cell; set {part} instead of it"
            )


def _decided(option: str) -> str | None:
    """Return the part of a cell that decides an option."""
    return _DECIDED.get(option) or next(
        (part for prefix, part in _DECIDED_PREFIXES.items() if option.startswith(prefix)), None
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
