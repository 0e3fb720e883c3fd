"""Names that SGLang gives its options and files, by version, and the version that is installed.

A new release changes this module alone. The names are read from the sources of the versions listed;
`experiments/sglang_grid/record_answers.py` records the answers of a real server, and the contract
test lists the names that it no longer has. The installed version and its parser are asked in the
interpreter that will run the server, and refused where they lack an option that we pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# Server arguments that this engine may pass; the same in every supported version.
FLAGS = frozenset(
    {
        "attention-backend",
        "context-length",
        "cuda-graph-backend-decode",
        "cuda-graph-backend-prefill",
        "cuda-graph-bs-decode",
        "disable-custom-all-reduce",
        "disable-radix-cache",
        "dtype",
        "enable-metrics",
        "enforce-disable-flashinfer-allreduce-fusion",
        "flashinfer-allreduce-fusion-backend",
        "grammar-backend",
        "host",
        "load-format",
        "max-running-requests",
        "max-total-tokens",
        "mem-fraction-static",
        "model-path",
        "page-size",
        "port",
        "random-seed",
        "revision",
        "served-model-name",
        "skip-server-warmup",
        "skip-tokenizer-init",
        "speculative-algorithm",
        "speculative-draft-load-format",
        "speculative-draft-model-path",
        "speculative-eagle-topk",
        "speculative-ngram-max-bfs-breadth",
        "speculative-num-draft-tokens",
        "speculative-num-steps",
        "tp-size",
        "trust-remote-code",
    }
)

# Parts of a reply's `meta_info` that counts are read from.
META = ("cached_tokens", "completion_tokens", "finish_reason", "num_retractions")
SPEC_META = ("spec_correct_drafts_histogram", "spec_num_correct_drafts", "spec_verify_ct")
INFO = ("attention_backend", "dtype", "page_size", "quantization", "version")

MOST_FUSED_ROWS = 2048  # a forward of more falls back to the plain all-reduce, silently
DEVICE_TIMER = "sglang:forward_execution_seconds_total"
ASK_VERSION_S = 60.0
ASK_PARSER_S = 300.0
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_PARSER = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
kinds = {"int": "int", "float": "float", "loads": "json"}
sys.stdout.write("\\n" + json.dumps([
    {"names": [name for name in action.option_strings if name.startswith("--")]}
    | ({} if action.nargs is None else {"nargs": action.nargs})
    | ({"type": kinds[kind]} if (kind := getattr(action.type, "__name__", "")) in kinds else {})
    | ({"choices": [str(choice) for choice in action.choices]} if action.choices else {})
    for action in parser._actions
]) + "\\n")
"""


@dataclass(frozen=True)
class Names:
    """One version's own names.

    Attributes:
        verify_span: Stage of a verify step in a profiler trace, `step[STAGE bs=1]`.
        fuses_nothing: Architectures whose layers never reach the fused all-reduce, so that asking
            for it changes nothing.
    """

    version: str
    verify_span: str
    fuses_nothing: frozenset[str]


VERSIONS = {
    "0.5.17": Names(
        version="0.5.17",
        verify_span="TARGET_VERIFY",
        fuses_nothing=frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM"}),
    ),
    "0.5.23": Names(version="0.5.23", verify_span="VERIFY", fuses_nothing=frozenset()),
}
NEWEST = list(VERSIONS)[-1]


def names(version: str) -> Names:
    """Return a version's names.

    Raises:
        ValueError: The version is not supported.
    """
    if version not in VERSIONS:
        raise ValueError(
            f"engine.version={version}: SGLang {' and '.join(VERSIONS)} are supported; install one"
            " of them, or set engine.version to the one that yours is closest to"
        )
    return VERSIONS[version]


def lacking(recorded: dict[str, list[str]]) -> list[str]:
    """Return the names that a version's recorded answers no longer have, each with its place.

    Args:
        recorded: Names by place: `options`, `meta_info`, `speculative_meta_info`, `server_info`,
            `metrics`.
    """
    wanted = {
        "options": sorted(f"--{flag}" for flag in FLAGS),
        "meta_info": META,
        "speculative_meta_info": (*META, *SPEC_META),
        "server_info": INFO,
        "metrics": (DEVICE_TIMER,),
    }
    return [
        f"{place}: {name}"
        for place, found in wanted.items()
        for name in found
        if name not in recorded.get(place, [])
    ]


def fusable(architecture: str, num_layers: int) -> float | None:
    """Return how many all-reduces of a forward the fused kernel can take, where that is measured.

    Of the 2 x layers + 1, the embedding's and the last layer's second one stay apart; dense Qwen3
    offers the attention side alone. Other architectures offer what a trace shows.
    """
    return {
        "Qwen3MoeForCausalLM": 2.0 * num_layers - 1,
        "DeepseekV3ForCausalLM": 2.0 * num_layers - 1,
        "KimiK25ForConditionalGeneration": 2.0 * num_layers - 1,  # the same layers inside
        "Qwen3ForCausalLM": float(num_layers),
    }.get(architecture)


@lru_cache
def installed_version(python: str) -> str:
    """Return the version that an interpreter has, "" if it has none.

    Args:
        python: Path of the interpreter; empty for this one.

    Raises:
        ValueError: There is no such interpreter.
    """
    return _ask([python or sys.executable, "-c", _VERSION], ASK_VERSION_S).stdout.strip()


def checked_version(python: str, wanted: str) -> str:
    """Return the version whose names are used.

    Args:
        python: Path of the interpreter; empty for this one.
        wanted: `engine.version`; `auto` is the installed one, which must then be supported.

    Raises:
        ValueError: SGLang is missing, or the installed version is not supported.
    """
    version = installed_version(python)
    if not version:
        raise ValueError(
            "engine=sglang: SGLang is not installed here; pip install -e '.[sglang]', or name an"
            " interpreter that has it in engine.python"
        )
    if wanted != "auto":
        return wanted
    if version not in VERSIONS:
        raise ValueError(
            f"SGLang {version} is not supported ({' and '.join(VERSIONS)} are); it"
            f" {_lacking(python)}; set engine.version to the one it is closest to, at your own risk"
        )
    return version


def installed_options(python: str) -> list[dict[str, Any]]:
    """Return the options that an installed SGLang's parser has, [] if it cannot be imported.

    Args:
        python: Path of the interpreter; empty for this one.
    """
    said = _ask([python or sys.executable, "-c", _PARSER], ASK_PARSER_S).stdout.splitlines()
    options: list[dict[str, Any]] = json.loads(
        next((line for line in said if line.startswith('[{"names"')), "[]")
    )
    return options


def _lacking(python: str) -> str:
    """Say which of our arguments the installed parser does not know."""
    names = {name for option in installed_options(python) for name in option["names"]}
    if not names:
        return "cannot be imported, so that its arguments are not known"
    lacks = sorted(f"--{flag}" for flag in FLAGS if f"--{flag}" not in names)
    return f"lacks {', '.join(lacks)}" if lacks else "has every argument that is used"


def _ask(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise ValueError(f"engine.python={command[0]}: there is no such interpreter") from None
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"engine.python={command[0]}: importing SGLang took more than {timeout_s:g} s"
        ) from None
