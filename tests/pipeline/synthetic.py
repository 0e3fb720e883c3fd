"""Records as an engine would leave them, with counts and times that a reader can check by eye."""

import random
from dataclasses import replace

from pipeline.cell.response import Response
from pipeline.record.older import older_abilities
from pipeline.record.record import CellRecord, Status
from verify.base import Proof


def make_response(prompt_id="chat-0", category="chat", committed=(1, 1, 1), **changes):
    """Return a response whose steps take verify 20, draft 1 and host 1 ms; prefill takes 50 ms."""
    steps = len(committed)
    tokens = changes.pop("tokens", tuple(range(100, 101 + sum(committed))))
    verify_ms = changes.pop("verify_ms", (20.0,) * steps)
    draft_ms = changes.pop("draft_ms", (1.0,) * steps)
    step_ms = tuple(v + d + 1.0 for v, d in zip(verify_ms, draft_ms, strict=True))
    settings = {
        "num_prompt_tokens": 30,
        "tokens": tokens,
        "margins": (2.5,) * len(tokens),
        "proposed": (3,) * steps,
        "depth": (3,) * steps,
        "verify_ms": verify_ms,
        "draft_ms": draft_ms,
        "step_ms": step_ms,
        "prefill_ms": 50.0,
        "decode_ms": sum(step_ms),
        "finish": "length",
        "others_cpu": 0.01,
    }
    return Response(
        prompt_id=prompt_id, category=category, committed=tuple(committed), **settings | changes
    )


def make_plain(prompt_id="chat-0", category="chat", num_tokens=3, **changes):
    """Return a response of plain decode: steps of 20 ms, nothing drafted."""
    none = (0,) * num_tokens
    settings = {
        "proposed": none,
        "depth": none,
        "verify_ms": (19.0,) * num_tokens,
        "draft_ms": (0.0,) * num_tokens,
    }
    return make_response(prompt_id, category, (1,) * num_tokens, **settings | changes)


def make_record(drafter, verify, *repetitions, **changes):
    """Return a finished cell, `none` with width 1 and any other drafter with width 4."""
    plain = drafter == "none"
    settings = {
        "cell_id": f"{drafter}-{verify}",
        "comparison": "c0ffee",
        "label": f"{drafter} × {verify}",
        "params": {
            "drafter": drafter,
            "verify": verify,
            "engine": "torch",
            "target": "SmolLM2-135M-Instruct",
            "workload": "embedded",
        },
        "abilities": older_abilities({"drafter": drafter, "verify": verify}),
        "is_baseline": plain,
        "width": 1 if plain else 4,
        "greedy": True,
        "status": Status.OK,
        "stop_rule": "precise: ±1.4 % of tok/s after 3 repetitions",
        "proof": Proof("native_plan", 10**6, 10**6, "fp16 weights", "static cache"),
        "repetitions": tuple(tuple(responses) for responses in repetitions),
        "settings": {"dtype": "float32", "threads": "2"},
        "seconds": {"start": 2.1, "warm_up": 1.4, "measure": 41.0, "orchestrate": 0.6},
        "command": f"python -m pipeline drafter={drafter} verify={verify}",
    }
    return CellRecord(**settings | changes)


# By class: chance that a draft token is accepted.
ACCEPT = {"chat": 0.28, "code": 0.45, "copy": 0.82, "math": 0.4}
# By drafter and backend: (draft_ms, verify_ms at the cell's width).
COST = {
    ("none", "extend"): (0.0, 38.0),
    ("none", "graph_captured"): (0.0, 11.4),
    ("ngram", "extend"): (0.1, 68.0),
    ("ngram", "graph_captured"): (0.1, 16.2),
}


def make_sweep(prompts_per_class=6, num_tokens=96, repetitions=3, cost=COST):
    """Return the cells of a drafter × backend grid; equal tokens, seeded counts and noise."""
    return [
        _cell(drafter, verify, times, (prompts_per_class, num_tokens, repetitions))
        for (drafter, verify), times in cost.items()
    ]


def slower(record, factor):
    """Return a cell with every time `factor` times as long, as on a machine that others use."""
    return replace(
        record,
        repetitions=tuple(
            tuple(
                replace(
                    r,
                    **{
                        name: tuple(factor * ms for ms in getattr(r, name))
                        for name in ("verify_ms", "draft_ms", "step_ms")
                    },
                    decode_ms=factor * r.decode_ms,
                )
                for r in responses
            )
            for responses in record.repetitions
        ),
    )


def measured_later(sweep, cell_id, best_id, factor):
    """Return the sweep with one cell measured at a slower hour, the best baseline beside it."""
    best = next(r for r in sweep if r.cell_id == best_id)
    return [
        replace(
            slower(r, factor),
            control_id=best_id,
            control=slower(best, factor).repetitions,
            group_starts=("later",),
        )
        if r.cell_id == cell_id
        else replace(r, group_starts=("first",))
        for r in sweep
    ]


def _cell(drafter, verify, times, size):
    prompts_per_class, num_tokens, repetitions = size
    names = [f"{c}-{i}" for i in range(prompts_per_class) for c in ACCEPT]
    noise = random.Random(f"{drafter} {verify}")
    return make_record(
        drafter,
        verify,
        *[
            [_response(name, num_tokens, drafter, times, noise) for name in names]
            for _ in range(repetitions)
        ],
    )


def _response(name, num_tokens, drafter, times, noise):
    category = name.split("-")[0]
    text = random.Random(f"text of {name}")
    tokens = tuple(text.randrange(49152) for _ in range(num_tokens))
    rate = ACCEPT[category] * text.uniform(0.8, 1.2)
    committed, proposed = [], []
    counts = random.Random(f"{drafter} on {name}")
    while (left := num_tokens - 1 - sum(committed)) > 0:
        drafted = 0 if drafter == "none" or counts.random() < 0.2 else 3
        accepted = 0
        while accepted < drafted and counts.random() < rate:
            accepted += 1
        committed.append(min(left, accepted + 1))
        proposed.append(drafted)
    draft, verify = times
    verify_ms = tuple(verify * noise.gauss(1, 0.02) for _ in committed)
    plain = make_response(
        name,
        category,
        committed,
        tokens=tokens,
        margins=tuple(text.expovariate(0.4) + 0.01 for _ in tokens),
        proposed=tuple(proposed),
        depth=tuple(proposed),
        verify_ms=verify_ms,
        draft_ms=(draft,) * len(committed),
        step_ms=tuple(v + draft + 0.4 for v in verify_ms),
        decode_ms=sum(verify_ms) + (draft + 0.4) * len(committed),
        prefill_ms=80 * noise.gauss(1, 0.05),
        others_cpu=abs(noise.gauss(0.01, 0.01)),
    )
    return plain
