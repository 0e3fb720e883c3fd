"""Measure a cell on an SGLang server: start it, warm it up, ask it, prove what ran and stop it.

`SglangSession` owns the server and the evidence; `Asker` sends requests and turns the replies and
the plugin's steps into responses.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cell.cell import Sampling
from pipeline.cell.response import Response
from pipeline.engine.sglang.arguments import server_arguments
from pipeline.engine.sglang.counts import (
    Records,
    Reply,
    check_reply,
    device_seconds,
    margins,
    margins_shared,
    read_records,
    response,
)
from pipeline.engine.sglang.environment import install_plugin, server_environment
from pipeline.engine.sglang.evidence import Evidence
from pipeline.engine.sglang.gpus import wait_for_room
from pipeline.engine.sglang.server import Launch, Server, TimeOuts, start_server
from pipeline.engine.sglang.trace import AllReduces, all_reduces, wait_for_trace
from pipeline.engine.sglang.versions import checked_version, names
from pipeline.machine.cache import cache_root
from pipeline.machine.provenance import OtherProcesses
from pipeline.workload.prompts import Prompt

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from pipeline.engine.sglang.settings import SglangSettings
    from verify.base import Proof


PROBE_IDS = (1, 2, 3)  # any vocabulary has these
TRACED_STEPS = 8
TRACE_TIMEOUT_S = 120.0


class SglangSession:
    """One server and what it did so far.

    Attributes:
        server: The running server.
    """

    def __init__(self, engine: SglangSettings, cell: Cell) -> None:
        """Launch the server.

        Raises:
            ValueError: SGLang is missing, of an unsupported version, or refuses the arguments.
            ServerFault: The server did not become ready; nothing of it is left.
        """
        self._cell = cell
        self._arguments = server_arguments(cell, engine, cache_root())
        self._version = checked_version(engine.python, engine.version)
        stop_ids = sorted(cell.target.tokenizer(cache_root()).stop_ids)
        self._margins: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="specroi-sglang-"))
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_folder)
            self.server = self._launch(engine)
            undo.callback(self.server.stop)
            info = self.server.client.get("/server_info")
            self._evidence = Evidence(cell, self._arguments, info)
            undo.pop_all()
        batch = cell.parallelism.batch
        self._asker = Asker(self.server, self._folder, cell.sampling, stop_ids, batch)

    def warm_up(self, prompts: list[Prompt]) -> None:
        """Run every kind of step once, uncounted; trace the all-reduces; note plain margins.

        Raises:
            ValueError: There are fewer prompts than requests in flight.
            RuntimeError: The server runs without the plugin.
        """
        batch = self._cell.parallelism.batch
        if len(prompts) < batch:
            raise ValueError(
                f"parallelism.batch={batch}: the workload has {len(prompts)} prompts, and a closed"
                " loop needs at least as many"
            )
        if not self.server.log.plugin_active:
            raise RuntimeError("the plugin did not announce itself in the server's log")
        shortest = sorted(prompts, key=lambda prompt: len(prompt.tokens))
        self._asker.ask_all(shortest[:batch])
        if self._cell.parallelism.tp > 1:
            self._evidence.trace = self._trace(shortest[:batch])
        self._asker.collect()
        if self._cell.is_baseline and self._cell.sampling.temperature == 0:
            self._margins = {prompt.id: self._asker.margins(prompt) for prompt in prompts}
        self._evidence.begin(device_seconds(self.server.client.metrics()))

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt."""
        return self.answer([prompt], repetition)[0]

    def answer(self, prompts: Sequence[Prompt], repetition: int) -> list[Response]:
        """Answer prompts in a closed loop of `parallelism.batch` requests in flight.

        Alone in flight, each request begins with nothing learnt from an earlier one; with several,
        each repetition does.
        """
        size = len(prompts) if self._cell.parallelism.batch > 1 else 1
        chunks = [prompts[i : i + size] for i in range(0, len(prompts), size)]
        return [response for chunk in chunks for response in self._measured(chunk)]

    def proof(self) -> Proof:
        """What ran since warm-up."""
        seconds = device_seconds(self.server.client.metrics())
        return self._evidence.proof(seconds, self.server.log.fusion_failure)

    def settings(self) -> dict[str, str]:
        """What the server resolved, and how to serve the same."""
        return self._evidence.settings() | {
            "sglang": self._version,
            "seed": str(self._cell.sampling.seed),
            "deploy": self._arguments.deploy(),
            "server_command": shlex.join(self.server.command),
        }

    def close(self) -> None:
        """Stop the server; its GPUs' memory is back when this returns."""
        try:
            self.server.stop()
        finally:
            self._remove_folder()

    def _launch(self, engine: SglangSettings) -> Server:
        """Start the server with our plugin beside it."""
        arguments, folder = self._arguments, self._folder
        wait_for_room(arguments.tp, engine.mem_fraction, engine.fence_timeout_s)
        install_plugin(folder)
        environment = server_environment(self._cell, arguments, self._version, folder)
        inherited = os.environ.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), inherited)))
        waits = TimeOuts(
            start=engine.start_timeout_s,
            request=engine.request_timeout_s,
            hang=engine.hang_timeout_s,
            stop=engine.stop_timeout_s,
            fence=engine.fence_timeout_s,
        )
        return start_server(
            Launch(
                command=lambda port: arguments.command(port),
                environment=environment,
                served_name=arguments.served_name,
                folder=folder,
                time_outs=waits,
                probe_ids=PROBE_IDS,
            )
        )

    def _measured(self, prompts: Sequence[Prompt]) -> list[Response]:
        """Answer prompts and pair each reply with its steps."""
        answers = self._asker.ask_all(prompts)
        records = self._asker.collect()
        self._evidence.add(answers, records)
        num = self._cell.drafter.num_draft_tokens
        depth = int(dict(self._arguments.drafter).get("speculative-num-steps", num))
        return [response(a, records, num, depth, self._margins_of(a)) for a in answers]

    def _trace(self, prompts: Sequence[Prompt]) -> AllReduces:
        """Profile a few steps of long answers, all in flight, and count the all-reduces in them."""
        folder = self._folder / "trace"
        num_steps = TRACED_STEPS + len(prompts) - 1  # each may be read in a step of its own
        profile = {"output_dir": str(folder), "num_steps": num_steps, "with_stack": False}
        self.server.client.post("/start_profile", profile | {"activities": ["CPU", "GPU"]})
        long = 2 * num_steps * (self._cell.drafter.num_draft_tokens + 1)
        sampling = {"max_new_tokens": long, "temperature": 0.0, "ignore_eos": True}
        self._asker.ask_all(prompts, sampling_params=sampling)
        stage = "DECODE" if self._cell.is_baseline else names(self._version).verify_span
        return all_reduces(wait_for_trace(folder, TRACE_TIMEOUT_S), stage)

    def _margins_of(self, answer: Reply) -> tuple[float, ...]:
        """Return the noted margins as far as they are the answer's."""
        noted = self._margins.get(answer.prompt.id, ((), ()))
        return margins_shared(*noted, answer.reply["output_ids"])

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


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

    def ask(self, prompt: Prompt, **more: Any) -> Reply:
        """Send one prompt and wait for its whole reply; `more` goes into the request."""
        rid = f"specroi-{next(self._ids)}-{prompt.id}"
        body = {"rid": rid, "input_ids": list(prompt.tokens), "sampling_params": self._sampling}
        others, began = OtherProcesses(self._server.family.members), time.perf_counter()
        reply = self._server.client.generate(body | more)
        wall_ms = (time.perf_counter() - began) * 1e3
        check_reply(reply)
        return Reply(prompt, rid, reply, wall_ms, others.share())

    def ask_all(self, prompts: Sequence[Prompt], **more: Any) -> list[Reply]:
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
