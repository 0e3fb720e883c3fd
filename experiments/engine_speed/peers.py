"""Other engines on the embedded target, behind one call: token ids in, tokens and times out."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

LLAMA_CPP = Path(__file__).parent / "llama_cpp"


class Answer(NamedTuple):
    """What a peer generated, and the wall time from its first token to its last."""

    tokens: tuple[int, ...]
    decode_ms: float

    @property
    def tok_s(self) -> float:
        """Decode tokens per second: the first token is prefill's."""
        return (len(self.tokens) - 1) / self.decode_ms * 1e3


class _Clock(BaseStreamer):
    """Notes when tokens arrive; transformers hands over the prompt first."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.arrivals.append(time.perf_counter())

    def end(self) -> None:
        pass


class Transformers:
    """transformers' `generate` on the dequantised checkpoint, plain or with prompt look-up."""

    def __init__(self, folder: Path, stop_ids: Sequence[int], max_new_tokens: int) -> None:
        """Load the model once; both ways of decoding share it."""
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._settings = {
            "max_new_tokens": max_new_tokens,
            "do_sample": False,
            "eos_token_id": list(stop_ids),
            "pad_token_id": stop_ids[0],
        }

    def generate(self, tokens: Sequence[int], **settings: Any) -> Answer:
        """Answer one prompt; settings go to `generate`.

        Streaming tells when the first token came. Look-up decoding cannot stream, so its
        prefill is timed apart, as the generation of a single token, and subtracted.
        """
        prompt = torch.tensor([list(tokens)])
        mask = torch.ones_like(prompt)
        began = time.perf_counter()
        if settings:
            one = self._settings | {"max_new_tokens": 1}
            self._model.generate(prompt, attention_mask=mask, **one)
            prefilled = time.perf_counter()
            out = self._model.generate(prompt, attention_mask=mask, **self._settings, **settings)
            decode = (time.perf_counter() - prefilled) - (prefilled - began)
        else:
            clock = _Clock()
            out = self._model.generate(
                prompt, attention_mask=mask, streamer=clock, **self._settings
            )
            decode = clock.arrivals[-1] - clock.arrivals[1]
        return Answer(tuple(out[0, len(tokens) :].tolist()), decode * 1e3)


class LlamaCpp:
    """llama.cpp through node-llama-cpp's ready binary, on the GGUF file itself."""

    def __init__(self, gguf: Path, threads: int, max_new_tokens: int) -> None:
        """Start the process and wait until the model is loaded."""
        self._max_new_tokens = max_new_tokens
        self._process = subprocess.Popen(
            ["node", "serve.mjs", str(gguf), str(threads)],
            cwd=LLAMA_CPP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.system = self._read()["system"]

    def generate(self, tokens: Sequence[int]) -> Answer:
        """Answer one prompt by the binding's own loop, whose sampler takes longer than a step."""
        self._last = self._ask(tokens, {"max_new_tokens": self._max_new_tokens})
        return self._last

    def replay(self, tokens: Sequence[int]) -> Answer:
        """Run the last answer's forwards again, without head and sampling: its floor."""
        return self._ask(tokens, {"replay": list(self._last.tokens)})

    def _ask(self, tokens: Sequence[int], how: dict[str, Any]) -> Answer:
        request = {"tokens": list(tokens)} | how
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        return Answer(tuple(answer["tokens"]), answer["decode_ms"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"node ended: run `npm install --ignore-scripts` in {LLAMA_CPP}")
        parsed: dict[str, Any] = json.loads(line)
        return parsed
