"""A server whose answers all take the same time: what two clients then differ by is their own.

    python -m experiments.engines_agree.steady_server PORT &
    python -m experiments.engines_agree.client PORT TOKENIZER_FOLDER

It answers what `sglang.bench_serving` and our client ask of a server of SGLang 0.5.17, in the same
JSON; on a real one, answers of the same length scatter by more than the clients differ.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MS_PER_TOKEN = 1.2
HOST = "127.0.0.1"


class Steady(BaseHTTPRequestHandler):
    """Answers with as many tokens as are asked for, each after the same time."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer any question about the server."""
        self._reply({"data": [{"id": "steady"}], "model_path": "steady", "internal_states": [{}]})

    def do_POST(self) -> None:
        """Answer a request for tokens, or agree to anything else."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if self.path != "/generate":
            self._reply({})
            return
        began, length = time.perf_counter(), int(body["sampling_params"]["max_new_tokens"])
        time.sleep(length * MS_PER_TOKEN / 1000)
        self._reply(
            {
                "text": " a" * length,
                "output_ids": [7] * length,
                "meta_info": {
                    "finish_reason": {"type": "length", "length": length},
                    "prompt_tokens": len(body.get("input_ids", ())),
                    "completion_tokens": length,
                    "cached_tokens": 0,
                    "e2e_latency": time.perf_counter() - began,
                },
            }
        )

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _reply(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer((HOST, int(sys.argv[1])), Steady).serve_forever()
