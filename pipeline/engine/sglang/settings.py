"""The SGLang engine's settings and their checks; what it does with them is `engine.py`'s."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.engine.sglang.extras import checked_extras
from pipeline.engine.sglang.versions import NEWEST, VERSIONS, installed_version, names


@dataclass(frozen=True)
class SglangSettings:
    """Settings of the SGLang engine.

    Attributes:
        version: `auto` (the installed one), or a supported version, whose names are then used.
        python: Interpreter that has SGLang; empty for this one.
        attention: Attention backend, the same for every cell: the server's default depends on the
            drafter. `fa3` on Hopper, `triton` anywhere.
        page_size: Tokens of a cache page.
        mem_fraction: Share of GPU memory for weights and cache.
        context_length: Longest request, in tokens; 0 is the model's own.
        max_total_tokens: Size of the cache, in tokens; 0 is what fits.
        load_format: `auto`, or `dummy` for random weights in a configuration's shape; n-gram drafts
            are random then, so that experts spread: good for what a step costs, never for the rest.
        start_timeout_s: From launch to a real completion; a large model loads for many minutes.
        request_timeout_s: For one answer.
        hang_timeout_s: Silence of a server that should answer.
        stop_timeout_s: From SIGTERM to the kill of a sound server's group. Nothing is in flight
            then, and SGLang itself, which looks for the signal every 5 s, ends by killing.
        fence_timeout_s: For the GPUs' memory to come back.
        extra_args: More server arguments, as written on a command line.
    """

    name: str = "sglang"
    version: str = "auto"
    python: str = ""
    attention: str = "fa3"
    page_size: int = 1
    mem_fraction: float = 0.85
    context_length: int = 0
    max_total_tokens: int = 0
    load_format: str = "auto"
    start_timeout_s: float = 1800
    request_timeout_s: float = 600
    hang_timeout_s: float = 60
    stop_timeout_s: float = 1
    fence_timeout_s: float = 60
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Freeze what yaml gives, and check names and ranges."""
        object.__setattr__(self, "extra_args", tuple(str(word) for word in self.extra_args))
        self._check_extra_args()
        if self.load_format not in ("auto", "dummy"):
            raise ValueError(f"engine.load_format={self.load_format}: must be auto or dummy")
        if not 0 < self.mem_fraction < 1:
            raise ValueError(f"engine.mem_fraction={self.mem_fraction}: between 0 and 1")
        for name in ("start", "request", "hang", "stop", "fence"):
            if not 0 < (seconds := getattr(self, f"{name}_timeout_s")) < math.inf:
                raise ValueError(
                    f"engine.{name}_timeout_s={seconds}: must be more than 0, and finite"
                )
        for name, least in (("page_size", 1), ("context_length", 0), ("max_total_tokens", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise ValueError(f"engine.{name}={getattr(self, name)}: {least} or more")

    @property
    def known_version(self) -> str:
        """The version whose names are used; the newest where none is installed."""
        return (
            (installed_version(self.python) or NEWEST) if self.version == "auto" else self.version
        )

    def _check_extra_args(self) -> None:
        """Refuse a version that is not known, and arguments that it would not take."""
        if self.version != "auto":
            names(self.version)
        if self.extra_args:
            known = self.known_version
            checked_extras(self.extra_args, known if known in VERSIONS else NEWEST)
