"""Every kind of input: how a sound one is damaged, and what reads it."""

from __future__ import annotations

import json
import random
import struct
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from omegaconf import OmegaConf
from safetensors.torch import save
from torch import Tensor

from drafters.eagle3.checkpoint import check_served, load_head, save_compact, save_head
from drafters.eagle3.config import read_config
from experiments.hostile_input.damage import JUNK, REMOVED, blob, edited, plain, text
from pipeline.config.compose import compose_each, expand
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded
from pipeline.engine.sglang.cause import first_cause
from pipeline.engine.sglang.counts import (
    Miscount,
    Reply,
    check_reply,
    device_seconds,
    margins,
    read_records,
    response,
)
from pipeline.engine.sglang.model import model_facts
from pipeline.engine.sglang.versions import DEVICE_TIMER
from pipeline.gate.arm import arm
from pipeline.gate.reference import dump, load, new_reference
from pipeline.judge.comparison import compare
from pipeline.record.record import load_record, save_record, save_repetition
from pipeline.record.sweep_folder import SweepFolder, create_sweep
from pipeline.roi import __main__ as roi
from pipeline.roi.numbers import KEYS, RATES, WORDS
from pipeline.roi.scale.command import SCALES
from pipeline.roi.verdict import class_verdicts
from pipeline.sweep.build import PARTS
from pipeline.sweep.settings import Settings
from pipeline.target.checkpoint import Checkpoint
from pipeline.target.gguf_checkpoint import convert_gguf
from pipeline.target.random_checkpoint import RandomCheckpoint
from pipeline.target.target import Target
from pipeline.target.tokenizer import Tokenizer
from pipeline.workload.files import read_rows
from pipeline.workload.prompts import Prompt
from pipeline.workload.rows import read_row
from tests.drafters.eagle3.heads import random_head
from tests.pipeline.synthetic import make_record, make_response, make_sweep
from verify.base import TargetShape
from verify.sglang_plugin import RECORDS


class Kind(NamedTuple):
    """One kind of input.

    Attributes:
        inputs: Damaged inputs.
        read: Reads one, in an empty folder of its own; returns or refuses.
        refusals: Errors by which its reader refuses, `ValueError` apart.
        share: Part of the asked number that is tried, for a slow reader.
    """

    inputs: st.SearchStrategy[Any]
    read: Callable[[Any, Path], object]
    refusals: tuple[type[Exception], ...] = ()
    share: float = 1.0


def try_one(kind: Kind, given: Any) -> str:
    """Read one input; return the refusal's line, or "" for a sound result.

    Raises:
        Exception: Whatever is no refusal, or a refusal that is not one line.
    """
    with tempfile.TemporaryDirectory(prefix="hostile-") as place:
        folder = Path(place) / "own"
        folder.mkdir()
        try:
            kind.read(given, folder)
        except (ValueError, *kind.refusals) as error:
            _check_line(folded(error))
            return folded(error)
        finally:
            outside = [path.name for path in Path(place).iterdir() if path != folder]
            assert not outside, f"written outside its folder: {outside}"
    return ""


def _check_line(said: str) -> None:
    assert said.strip(), "a refusal that says nothing"
    assert len(said.splitlines()) == 1, f"a refusal of several lines: {said[:300]!r}"
    assert said.isprintable(), f"a refusal with control characters: {said[:300]!r}"
    assert len(said) < 5000, f"a refusal of {len(said)} characters: {said[:100]!r}"


# ------------------------------------------------------------------ settings of a command line

SETTINGS = """
    sampling.max_new_tokens sampling.temperature sampling.seed sampling parallelism.tp
    parallelism.batch target target.source target.dtype target._target_ target.shape
    +target.shape drafter drafter._target_ drafter.num_draft_tokens verify verify._target_
    engine engine._target_ engine.threads workload workload._target_ workload.per_class
    measurement.precision measurement.max_seconds runs tracking.uri tracking.experiment
    resume cache launcher launcher._target_ launcher.start_timeout_s on_impossible ~target
    +drafter._args_ +sampling._partial_ +sampling._convert_ +new.setting hydra.run.dir
"""
VALUES = r"""
    1 0 -1 3.5 1e400 nan null true '' [] {} [1,2] {a:1} ngram none eagle3_scratch torch sglang
    os.system builtins.eval subprocess.Popen pipeline.config.messages.os.system
    pipeline.machine.provenance.subprocess.Popen pipeline.record.record.write_atomically
    drafters pipeline pipeline.x verify.base.TargetShape drafters.ngram.Ngram
    ${oc.env:HOME} ${target} ${nothing} ${..x} {_target_:os.system,command:id} choice(1,2)
    range(1,3) 1,2 ../x /etc/passwd hf_token \x00 é
"""
_OVERRIDE = st.one_of(
    st.builds("{}={}".format, st.sampled_from(SETTINGS.split()), st.sampled_from(VALUES.split())),
    st.builds("{}={}".format, st.sampled_from(SETTINGS.split()), st.sampled_from(VALUES.split())),
    st.builds("{}={}".format, st.sampled_from(SETTINGS.split()), st.text(max_size=12)),
    st.text(max_size=20),
)


def _read_overrides(given: list[str], folder: Path) -> None:
    """Compose and build a grid's cells as a command does, up to what touches the disk."""
    jobs = expand(given)[:4]
    for config in compose_each(jobs):
        for part in PARTS:
            build_part(config, part)
        OmegaConf.update(config, "cache", None)
        Settings.read(config)


# ------------------------------------------------------------------------------- prompt files

ROW = {
    "id": "a",
    "category": "chat",
    "system": "be short",
    "messages": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because."},
        {"role": "user", "content": [{"type": "text", "text": "So?"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
}
ROWS = (
    ROW,
    {"prompt": "Write a poem", "source": "x", "score": 1.5},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"},
                       {"from": "human", "value": "Go on"}]},
    {"turns": ["one"], "question_id": 3},
    {"instruction": "Add", "input": "1 2"},
)  # fmt: skip


def _read_prompts(given: bytes, folder: Path) -> None:
    path = folder / "prompts.jsonl"
    path.write_bytes(given)
    for where, row in read_rows(path):
        read_row(row, where, "own")


def _lines(rows: list[bytes]) -> bytes:
    return b"\n".join(rows)


_PROMPT_LINE = st.one_of(*(text(row) for row in ROWS))

# -------------------------------------------------------------------------------- checkpoints

SHAPE = TargetShape(
    num_layers=1,
    hidden_size=8,
    intermediate_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    vocab_size=12,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    max_positions=128,
    tie_word_embeddings=False,
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 12,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 10_000.0,
    "rope_scaling": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
_TENSORS: dict[str, Tensor] = {k: v.clone() for k, v in RandomCheckpoint(SHAPE).tensors().items()}
WEIGHTS = save(_TENSORS)


def header_of(whole: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a safetensors file into its header and its data."""
    (size,) = struct.unpack("<Q", whole[:8])
    return json.loads(whole[8 : 8 + size]), whole[8 + size :]


def with_header(header: Any, data: bytes) -> bytes:
    """Join a safetensors file."""
    said = json.dumps(header).encode()
    return struct.pack("<Q", len(said)) + said + data


def safetensors_files(whole: bytes) -> st.SearchStrategy[bytes]:
    """Damage a safetensors file in its header or in its bytes."""
    header, data = header_of(whole)
    dtypes = ["F32", "F64", "I64", "BOOL", "F8_E4M3", "F4", "F6_E2M3", "C64", "U16", "x"]

    def retyped(number: int, dtype: str) -> bytes:
        names = [name for name in header if name != "__metadata__"]
        return with_header(
            edited(header, []) | {names[number]: header[names[number]] | {"dtype": dtype}}, data
        )

    return st.one_of(
        plain(header).map(lambda damaged: with_header(damaged, data)),
        st.builds(retyped, st.integers(0, 5), st.sampled_from(dtypes)),
        blob(whole, 400),
        st.sampled_from([b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.", b"PK\x03\x04archive/data"]),
    )


INDEX = {
    "metadata": {"total_size": 1},
    "weight_map": dict.fromkeys(_TENSORS, "model-00001-of-00001.safetensors"),
}


def _read_weights(given: tuple[bytes, bytes, bytes | None], folder: Path) -> None:
    config, weights, index = given
    (folder / "config.json").write_bytes(config)
    name = "model.safetensors" if index is None else "model-00001-of-00001.safetensors"
    (folder / name).write_bytes(weights)
    if index is not None:
        (folder / "model.safetensors.index.json").write_bytes(index)
    target = Target("x", str(folder))
    for read in (lambda: target.context_length(folder), lambda: model_facts(str(folder))):
        try:
            read()
        except ValueError as error:
            _check_line(folded(error))
    Checkpoint(folder).tensors()


_SOUND_CONFIG = json.dumps(CONFIG).encode()
_CHECKPOINT = st.one_of(
    st.tuples(text(CONFIG), st.just(WEIGHTS), st.none()),
    st.tuples(st.just(_SOUND_CONFIG), safetensors_files(WEIGHTS), st.none()),
    st.tuples(st.just(_SOUND_CONFIG), st.just(WEIGHTS), text(INDEX)),
    st.tuples(text(CONFIG), safetensors_files(WEIGHTS), st.none() | text(INDEX)),
)

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
}
TOKENIZER_CONFIG = {
    "bos_token": {"content": "a"},
    "eos_token": "b",
    "chat_template": [{"name": "default", "template": "{{ messages[0]['content'] }}"}],
}


def _read_tokenizer(given: tuple[bytes, bytes, bytes], folder: Path) -> None:
    names = ("tokenizer.json", "tokenizer_config.json", "config.json")
    for name, data in zip(names, given, strict=True):
        (folder / name).write_bytes(data)
    tokenizer = Tokenizer(folder)
    tokenizer.encode("abab")
    if tokenizer.has_template:
        tokenizer.template_variables()
        tokenizer.render([{"role": "user", "content": "x"}])


_TOKENIZER = st.tuples(
    st.just(json.dumps(TOKENIZER).encode()) | text(TOKENIZER),
    text(TOKENIZER_CONFIG),
    st.just(_SOUND_CONFIG) | text({"vocab_size": 3, "eos_token_id": [1, 2], "text_config": {}}),
)

# -------------------------------------------------------------------------------------- heads


def _saved(save_one: Callable[..., None], name: str) -> tuple[dict[str, Any], bytes]:
    with tempfile.TemporaryDirectory() as place:
        save_one(random_head(), Path(place))
        config = json.loads((Path(place) / "config.json").read_text())
        return config, (Path(place) / name).read_bytes()


HEAD_CONFIG, HEAD = _saved(save_head, "model.safetensors")
_, COMPACT_HEAD = _saved(save_compact, "model.int8.safetensors")
FULL_HEAD_CONFIG = HEAD_CONFIG | {
    "rope_scaling": {"rope_type": "default", "full_attention": {"rope_theta": 1e4}},
    "sliding_window": None,
    "layer_types": ["full_attention"],
    "target_hidden_size": 32,
}


def _read_head(given: tuple[bytes, str, bytes], folder: Path) -> None:
    config, name, weights = given
    (folder / "config.json").write_bytes(config)
    (folder / name).write_bytes(weights)
    try:
        check_served(folder)
    except ValueError as error:
        _check_line(folded(error))
    load_head(folder)


_SOUND_HEAD_CONFIG = json.dumps(HEAD_CONFIG).encode()
_HEAD = st.one_of(
    st.tuples(text(FULL_HEAD_CONFIG), st.just("model.safetensors"), st.just(HEAD)),
    st.tuples(st.just(_SOUND_HEAD_CONFIG), st.just("model.safetensors"), safetensors_files(HEAD)),
    st.tuples(
        st.just(_SOUND_HEAD_CONFIG),
        st.just("model.int8.safetensors"),
        safetensors_files(COMPACT_HEAD),
    ),
    st.tuples(
        st.just(_SOUND_HEAD_CONFIG),
        st.just("model.safetensors.index.json"),
        text({"weight_map": {"fc.weight": "model.safetensors"}}),
    ),
)


def _read_head_config(given: Any, folder: Path) -> None:
    if isinstance(given, dict):
        read_config(given, "config.json")


# --------------------------------------------------------------------------------------- GGUF


def _gguf_value(kind: int, value: Any) -> bytes:
    if kind == 8:
        said = value.encode()
        return struct.pack("<Q", len(said)) + said
    if kind == 9:
        item, items = value
        body = b"".join(_gguf_value(item, each) for each in items)
        return struct.pack("<IQ", item, len(items)) + body
    return struct.pack({4: "<I", 6: "<f"}[kind], value)


GGUF_METADATA: tuple[tuple[str, int, Any], ...] = (
    ("general.architecture", 8, "llama"),
    ("llama.block_count", 4, 1),
    ("llama.embedding_length", 4, 8),
    ("llama.feed_forward_length", 4, 8),
    ("llama.attention.head_count", 4, 2),
    ("llama.attention.head_count_kv", 4, 1),
    ("llama.rope.dimension_count", 4, 4),
    ("llama.rope.freq_base", 6, 10_000.0),
    ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5),
    ("llama.context_length", 4, 128),
    ("tokenizer.ggml.bos_token_id", 4, 0),
    ("tokenizer.ggml.eos_token_id", 4, 1),
    ("tokenizer.ggml.model", 8, "gpt2"),
    ("tokenizer.ggml.pre", 8, "smollm"),
    ("tokenizer.ggml.tokens", 9, (8, [*"abcdefghijk", "ab"])),
    ("tokenizer.ggml.token_type", 9, (4, [3] + [1] * 11)),
    ("tokenizer.ggml.merges", 9, (8, ["a b"])),
)
GGUF_TENSORS = {
    "token_embd.weight": (12, 8), "output.weight": (12, 8), "output_norm.weight": (8,),
    "blk.0.attn_q.weight": (8, 8), "blk.0.attn_k.weight": (4, 8), "blk.0.attn_v.weight": (4, 8),
    "blk.0.attn_output.weight": (8, 8), "blk.0.ffn_gate.weight": (8, 8),
    "blk.0.ffn_up.weight": (8, 8), "blk.0.ffn_down.weight": (8, 8),
    "blk.0.attn_norm.weight": (8,), "blk.0.ffn_norm.weight": (8,),
}  # fmt: skip


def gguf_bytes(metadata: Any = GGUF_METADATA, kind: int = 0) -> bytes:
    """Return a small GGUF file of a Llama model."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(GGUF_TENSORS), len(metadata))
    for key, type_, value in metadata:
        out += _gguf_value(8, key) + struct.pack("<I", type_) + _gguf_value(type_, value)
    offset = 0
    for name, shape in GGUF_TENSORS.items():
        out += _gguf_value(8, name) + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, offset)
        offset += -(-4 * shape[0] * (shape[1] if len(shape) == 2 else 1) // 32) * 32
    out += b"\0" * (-len(out) % 32)
    return out + random.Random(0).randbytes(offset)


_GGUF_VALUES: dict[int, st.SearchStrategy[Any]] = {
    4: st.sampled_from([0, 1, 2, 3, 7, 8, 1000, 2**31, 2**32 - 1]),
    6: st.sampled_from([0.0, -1.0, 1e30, float("nan"), float("inf")]),
    8: st.sampled_from(["", "llama", "gpt2", "a\nb", "\x1b[31m", "x" * 6000, "é", "../x"]),
}


@st.composite
def _gguf_files(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(blob(gguf_bytes(), 1500))
    rows = list(GGUF_METADATA)
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, len(rows) - 1))
        key, old, _ = rows[number]
        type_ = draw(st.sampled_from([old, 4, 6, 8, 9]))
        if type_ == 9:
            item = draw(st.sampled_from([4, 6, 8]))
            value: Any = (item, draw(st.lists(_GGUF_VALUES[item], max_size=3)))
        else:
            value = draw(_GGUF_VALUES[type_])
        rows[number] = (draw(st.sampled_from([key, key, key, "x", "split.count"])), type_, value)
    if draw(st.booleans()):
        del rows[draw(st.integers(0, len(rows) - 1))]
    return gguf_bytes(rows, draw(st.sampled_from([0, 0, 1, 3, 8, 30, 99])))


def _read_gguf(given: bytes, folder: Path) -> None:
    path = folder / "model.gguf"
    path.write_bytes(given)
    made = convert_gguf(path, folder / "cache")
    Checkpoint(made).packed()
    Tokenizer(made).encode("ab")


# ------------------------------------------------------------------------------------ servers

PROMPT = Prompt("p", "chat", (1, 2, 3))
REPLY = {
    "output_ids": [5, 6, 7, 8, 9],
    "meta_info": {
        "finish_reason": {"type": "length", "length": 5},
        "completion_tokens": 5,
        "cached_tokens": 0,
        "num_retractions": 0,
        "spec_verify_ct": 2,
        "spec_num_correct_drafts": 2,
        "spec_correct_drafts_histogram": [0, 2],
        "output_top_logprobs": [[[-0.1, 5, None], [-2.0, 6, None]]] * 5,
    },
}
STEPS = {
    "flush": 1,
    "lost": 0,
    "first_s": {"r": 10.0},
    "steps": [
        {
            "mode": "target_verify",
            "batch": 1,
            "graph": True,
            "verify_ms": 4.0,
            "draft_ms": 1.0,
            "at_s": 10.0 + 0.01 * number,
            "committed": {"r": 2},
        }
        for number in (1, 2)
    ],
}
METRICS = f'# TYPE x counter\n{DEVICE_TIMER}{{category="decode",tp_rank="0"}} 1.5\n'


def _read_reply(given: tuple[Any, bytes, str], folder: Path) -> None:
    reply, steps, page = given
    device_seconds(page)
    check_reply(reply)
    (folder / RECORDS).write_bytes(steps)
    records = read_records(folder, 0)
    answer = Reply(PROMPT, "r", reply, 100.0, 0.0)
    response(answer, records, 3, 3, margins(reply))


_REPLY = st.one_of(
    st.tuples(plain(REPLY), st.just(json.dumps(STEPS).encode()), st.just(METRICS)),
    st.tuples(st.just(REPLY), text(STEPS), st.just(METRICS)),
    st.tuples(
        st.just(REPLY),
        st.just(json.dumps(STEPS).encode()),
        blob(METRICS.encode()).map(lambda page: page.decode(errors="replace")),
    ),
)

LOG = (
    b"[2026-12-01 10:00:00 TP0] Load weight begin.\n"
    b"Traceback (most recent call last):\n"
    b'  File "/x/scheduler.py", line 3, in run\n'
    b"    raise ValueError('no')\n"
    b"torch.OutOfMemoryError: CUDA out of memory. http://me:hunter2@host/x\n"
    b"\x1b[31m[10:00:01] Rank 0 scheduler died during initialization (exit code: -9)\x1b[0m\r"
)


def _read_log(given: bytes, folder: Path) -> None:
    path = folder / "server.log"
    path.write_bytes(given)
    said = first_cause(path)
    if said:
        _check_line(said)
    if given.count(b"hunter2") == given.count(b"http://me:hunter2@host"):
        assert "hunter2" not in said


_LOG = st.one_of(
    blob(LOG), blob(LOG * 3), st.binary(max_size=200), st.lists(blob(LOG), max_size=4).map(_lines)
)

# ------------------------------------------------------------------------------------ records

RESPONSES = (make_response("chat-0"), make_response("chat-1", committed=(2, 3, 1)))
RECORD = make_record("ngram", "extend", RESPONSES, RESPONSES, group_starts=("2026-12-01",))
BASELINE = make_record("none", "extend", RESPONSES, RESPONSES, group_starts=("2026-12-01",))


def _record_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        save_record(RECORD, Path(place))
        save_repetition(RESPONSES, 0, Path(place))
        return {path.name: path.read_bytes() for path in Path(place).iterdir()}


RECORD_FILES = _record_files()
_PLAIN_RECORD = json.loads(RECORD_FILES["record.json"])
SWEEP = {
    "cell_ids": [RECORD.cell_id, BASELINE.cell_id],
    "begun": "2026-12-01T10:00:00+00:00",
    "provenance": {"commit": "abc", "cpu": "x"},
    "settings": {"precision": 0.02},
    "tracking": {"uri": "sqlite:///x", "experiment": "specroi", "runs": "runs"},
    "ended": "",
    "seconds": {"total": 3.0},
}


def _read_sweep(given: tuple[bytes, bytes, bytes], folder: Path) -> None:
    """Read a sweep back, judge and decide, as `report` and `roi` do."""
    sweep, cell, responses = given
    own = create_sweep(folder, [RECORD.cell_id, BASELINE.cell_id])
    save_record(BASELINE, own.cell(BASELINE.cell_id))
    for number in (0, 1):
        save_repetition(RESPONSES, number, own.cell(BASELINE.cell_id))
    damaged = own.cell(RECORD.cell_id)
    damaged.mkdir(parents=True)
    (damaged / "record.json").write_bytes(cell)
    (damaged / "repetition_000.jsonl").write_bytes(responses)
    (own.path / "sweep.json").write_bytes(sweep)
    try:
        load_record(damaged)
    except ValueError as error:
        _check_line(folded(error))
    for comparison in compare(SweepFolder(own.path).records()):
        class_verdicts(comparison, {r.cell_id: r.label for r in comparison.records})


_SOUND_SWEEP, _SOUND_RECORD = json.dumps(SWEEP).encode(), RECORD_FILES["record.json"]
_SOUND_LINES = RECORD_FILES["repetition_000.jsonl"]
_RESPONSE_LINE = text(asdict(RESPONSES[0]))
_RECORDS = st.one_of(
    st.tuples(text(SWEEP), st.just(_SOUND_RECORD), st.just(_SOUND_LINES)),
    st.tuples(st.just(_SOUND_SWEEP), text(_PLAIN_RECORD), st.just(_SOUND_LINES)),
    st.tuples(
        st.just(_SOUND_SWEEP),
        st.just(_SOUND_RECORD),
        st.lists(_RESPONSE_LINE, min_size=1, max_size=2).map(_lines),
    ),
    st.tuples(st.just(_SOUND_SWEEP), st.just(_SOUND_RECORD), blob(_SOUND_LINES)),
)


def _reference() -> bytes:
    facts = {"fingerprint": "f", "commit": "abcdef012345", "cpu": "x", "cores": "2", "gpus": "none"}
    records = make_sweep(prompts_per_class=1)[:2]
    for record in records:
        record.params["prompts_digest"] = "abc"
    return dump(new_reference([arm(record, record.label) for record in records], facts)).encode()


REFERENCE = json.loads(_reference())


def _read_reference(given: bytes, folder: Path) -> None:
    reference = load(given, "reference=x.json")
    reference.differences(load(_reference(), "reference=sound.json"))


# -------------------------------------------------------------------------- typed-in numbers

_TYPED = st.one_of(
    st.sampled_from(
        [
            *(
                "82",
                "60",
                "2.0",
                "30",
                "4",
                "1",
                "0",
                "-1",
                "nan",
                "inf",
                "1e400",
                "1e-300",
                "1e12",
            ),
            *("", "x", "1,2", "0.6/0.4/0.3", "1/2", "/", "१", "1_000", "0x10", "a\nb", "\x1b[31m"),
        ]
    ),
    st.floats(0.001, 1e6).map(lambda number: f"{number:g}"),
    st.text(max_size=6),
)
_SENSIBLE = ("baseline_tok_s=82", "accept_length=2.0", "tok_s=60", "verify_ms=30", "width=4")
_NAMES = (*KEYS, *WORDS, RATES, "sweep", "scale", "x", "")


@st.composite
def _numbers(draw: st.DrawFn) -> list[str]:
    if draw(st.integers(0, 9)) == 0:
        scale = draw(st.sampled_from([*SCALES, "x", ""]))
        name = st.sampled_from(["batch", "context", "accept_length", "width", "x"])
        more = st.builds("{}={}".format, name, _TYPED)
        return [f"scale={scale}", *draw(st.lists(more, max_size=3))]
    given = [word for word in _SENSIBLE if draw(st.integers(0, 3))]
    more = st.builds("{}={}".format, st.sampled_from(_NAMES), _TYPED)
    taken = {word.partition("=")[0] for word in given}
    return given + [w for w in draw(st.lists(more, max_size=4)) if w.partition("=")[0] not in taken]


def _read_numbers(given: list[str], folder: Path) -> None:
    list(roi._answer(given))


KINDS: dict[str, Kind] = {
    "config overrides": Kind(
        st.lists(_OVERRIDE, min_size=1, max_size=3), _read_overrides, share=0.25
    ),
    "prompt files": Kind(
        st.lists(_PROMPT_LINE, min_size=1, max_size=3).map(_lines) | text(list(ROWS)), _read_prompts
    ),
    "checkpoints": Kind(_CHECKPOINT, _read_weights),
    "tokenizers": Kind(_TOKENIZER, _read_tokenizer),
    "heads": Kind(_HEAD, _read_head),
    "head configs": Kind(plain(FULL_HEAD_CONFIG), _read_head_config),
    "GGUF files": Kind(_gguf_files(), _read_gguf),
    "server replies": Kind(_REPLY, _read_reply, (Miscount, RuntimeError)),
    "server logs": Kind(_LOG, _read_log),
    "sweeps and records": Kind(_RECORDS, _read_sweep),
    "gate references": Kind(text(REFERENCE), _read_reference),
    "typed-in numbers": Kind(_numbers(), _read_numbers),
}
__all__ = ["JUNK", "KINDS", "REMOVED", "Kind", "try_one"]
