"""Puts prompts to a server, as many at once as the cell has in flight, and collects the steps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cell.response import Prompt, Sampling
from pipeline.engine.sglang.counts import Answer, margins
from pipeline.engine.sglang.records import Records, read_records
from pipeline.engine.sglang.server import Server
from pipeline.machine.cpu_load import OtherProcesses


class Asker:
    """One server's questions and answers."""

    def __init__(
        self, server: Server, folder: Path, sampling: Sampling, stop_ids: Sequence[int], batch: int
    ) -> None:
        """Ask `server`, whose plugin writes to `folder`, with `batch` requests in flight."""
        self._server, self._folder, self._batch = server, folder, batch
        # The seed is the server's: it is one of its arguments.
        self._sampling: dict[str, Any] = {
            "max_new_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "stop_token_ids": list(stop_ids),
        }
        self._ids = itertools.count()
        self._flush = 0

    def ask(self, prompt: Prompt, **more: Any) -> Answer:
        """Send one prompt and wait for its whole reply; `more` goes into the request."""
        rid = f"specroi-{next(self._ids)}-{prompt.id}"
        body = {"rid": rid, "input_ids": list(prompt.tokens), "sampling_params": self._sampling}
        others, began = OtherProcesses(self._server.family.members), time.perf_counter()
        reply = self._server.client.generate(body | more)
        wall_ms = (time.perf_counter() - began) * 1e3
        return Answer(prompt, rid, reply, wall_ms, others.share())

    def ask_all(self, prompts: Sequence[Prompt], **more: Any) -> list[Answer]:
        """Ask in a closed loop: the next request begins when one ends; `more` as for `ask`."""
        with ThreadPoolExecutor(self._batch) as pool:
            return list(pool.map(partial(self.ask, **more), prompts))

    def collect(self) -> Records:
        """Flush, which makes the plugin write what happened since the last time.

        Raises:
            RuntimeError: The plugin wrote nothing, or lost steps.
        """
        self._server.client.flush()
        records = read_records(self._folder, self._flush)
        self._flush = records.flush
        return records

    def margins(self, prompt: Prompt) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return a greedy answer's tokens with best minus second best at each, untimed."""
        reply = self.ask(prompt, return_logprob=True, top_logprobs_num=2).reply
        self.collect()
        return tuple(reply["output_ids"]), margins(reply)
