"""The SGLang that is installed: its version, and what its own parser says of our arguments.

Asked in another process: SGLang may live in another interpreter, and importing it takes seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.engine.sglang.names import FLAGS, VERSIONS

ASK_VERSION_S = 60.0
ASK_PARSER_S = 300.0
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_PARSER = """
import argparse, importlib.metadata, json, sys
sys.stdout.write("version " + importlib.metadata.version("sglang") + "\\n")
sys.stdout.flush()
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = sorted(parser._option_string_actions)
sys.stdout.write("\\n" + json.dumps(options) + "\\n")
sys.stdout.flush()
parser.parse_args(json.loads(sys.argv[1]))
"""


@dataclass(frozen=True)
class Parsed:
    """What the parser said.

    Attributes:
        version: The installed one; empty if there is none.
        options: Every option that it knows, with dashes; empty if SGLang cannot be imported.
        refusal: Why it refuses the arguments; empty if it takes them.
    """

    version: str
    options: frozenset[str]
    refusal: str


@lru_cache
def installed_version(python: str) -> str:
    """Return the version that an interpreter has, "" if it has none.

    Args:
        python: Path of the interpreter; empty for this one.

    Raises:
        ValueError: There is no such interpreter.
    """
    return _ask([python or sys.executable, "-c", _VERSION], ASK_VERSION_S).stdout.strip()


def parse(python: str, arguments: Sequence[str]) -> Parsed:
    """Let SGLang's own parser read arguments.

    Raises:
        ValueError: There is no such interpreter, or it hangs.
    """
    command = [python or sys.executable, "-c", _PARSER, json.dumps(list(arguments))]
    done = _ask(command, ASK_PARSER_S)
    said = done.stdout.splitlines()
    version = next((line.split()[1] for line in said if line.startswith("version ")), "")
    listed = next((line for line in said if line.startswith('["-')), "[]")
    options = frozenset(json.loads(listed))
    lines = done.stderr.strip().splitlines() or ["no message"]
    return Parsed(version, options, lines[-1] if done.returncode else "")


def check_version(version: str, options: frozenset[str]) -> None:
    """Refuse a version that is not supported.

    Args:
        version: The installed one.
        options: What its parser knows; empty if it could not be asked.

    Raises:
        ValueError: With the names that it lacks.
    """
    if version in VERSIONS:
        return
    lacks = sorted(f"--{flag}" for flag in FLAGS if f"--{flag}" not in options)
    said = f"lacks {', '.join(lacks)}" if lacks else "has every argument that is used"
    raise ValueError(
        f"SGLang {version or 'of unknown version'} is not supported ({' and '.join(VERSIONS)} are);"
        f" it {said}; set engine.version to the one it is closest to, at your own risk"
    )


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
