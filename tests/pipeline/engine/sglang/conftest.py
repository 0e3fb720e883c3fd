"""An interpreter that plays SGLang, a target folder, and cells for them."""

import json
import os
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from drafters.ngram import Ngram
from drafters.none import NoDrafter
from pipeline.cell.cell import Cell, Parallelism, Sampling
from pipeline.engine.sglang.engine import SglangEngine
from pipeline.engine.sglang.versions import FLAGS
from pipeline.machine.reaper import marked
from pipeline.target.target import Target
from pipeline.workload.sources import Classes
from tests.pipeline.engine.sglang.prompts import PROMPTS
from verify.graph_captured import GraphCaptured

PATIENCE_S = 600.0  # what nothing sound comes near, however busy the machine is
FAKE = Path(__file__).with_name("fake_server.py")
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 64,
    "vocab_size": 128,
    "num_hidden_layers": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
    "eos_token_id": 2,
}


@pytest.fixture
def python(tmp_path, monkeypatch) -> str:
    """Path of an executable that takes an interpreter's arguments and plays SGLang."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_FLAGS", json.dumps(sorted(FLAGS)))
    monkeypatch.setenv("FAKE_COUNT", str(tmp_path / "count"))
    return str(script)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A target's folder: a configuration, and a tokenizer of one word."""
    path = tmp_path / "target"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer_config.json").write_text("{}")
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def driver_says(tmp_path, monkeypatch):
    """Puts a driver's tool before the machine's own: a shell script that tells of GPUs."""

    def put(script: str) -> None:
        tool = tmp_path / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return put


@pytest.fixture
def engine(python) -> SglangEngine:
    return SglangEngine(
        python=python,
        start_timeout_s=PATIENCE_S,
        request_timeout_s=PATIENCE_S,
        hang_timeout_s=PATIENCE_S,
        stop_timeout_s=5,
        fence_timeout_s=2,
    )


@pytest.fixture
def cell(engine, folder) -> Cell:
    return Cell(
        target=Target("t", str(folder), dtype="auto"),
        drafter=NoDrafter(),
        verify=GraphCaptured(),
        engine=engine,
        workload=Classes(per_class=1),
        sampling=Sampling(max_new_tokens=24),
        parallelism=Parallelism(),
        prompts_digest="0",
    )


@pytest.fixture
def ngram_cell(cell) -> Cell:
    return replace(cell, drafter=Ngram(num_draft_tokens=3))


@pytest.fixture
def started(monkeypatch):
    """Starts a cell's session, warmed up, and stops it; no process may be left."""
    sessions = []

    def start(cell: Cell, fault: str = ""):
        monkeypatch.setenv("FAKE_FAULT", fault)
        session = cell.engine.start(cell)
        sessions.append(session)
        session.warm_up(PROMPTS)
        return session

    yield start
    for session in sessions:
        session.close()


@pytest.fixture(autouse=True)
def no_process_is_left(monkeypatch):
    """Whatever a test does to a server, all processes that it started are gone after it."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("SPECROI_TEST", mark)  # all of them inherit it, wherever they hang
    yield
    deadline = time.monotonic() + 60
    while left := marked(f"SPECROI_TEST={mark}"):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)
