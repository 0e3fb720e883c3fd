"""The SGLang that is installed: its version, and the options that its own parser knows.

Asked in another process: SGLang may live in another interpreter, and importing it takes many
seconds. So only an unknown version's parser is asked; a server reads its arguments with the very
same one before it touches a GPU, and `server.py` hands its refusal on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache

from pipeline.engine.sglang.versions import FLAGS, VERSIONS

ASK_VERSION_S = 60.0
ASK_PARSER_S = 300.0
_VERSION = "import importlib.metadata as m; print(m.version('sglang'))"
_PARSER = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
sys.stdout.write("\\n" + json.dumps(sorted(parser._option_string_actions)) + "\\n")
"""


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


def _lacking(python: str) -> str:
    """Say which of our arguments the installed parser does not know."""
    said = _ask([python or sys.executable, "-c", _PARSER], ASK_PARSER_S).stdout.splitlines()
    options = json.loads(next((line for line in said if line.startswith('["-')), "[]"))
    if not options:
        return "cannot be imported, so that its arguments are not known"
    lacks = sorted(f"--{flag}" for flag in FLAGS if f"--{flag}" not in options)
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
