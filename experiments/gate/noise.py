"""Shapes of noise for simulated gates: what two equal versions show when they answer in turns.

A gate is a row of turns, two to a pair. The machine's state at a turn (drift, speed, memory of the
turn before) is shared by all timed metrics of the turn; the rest of the noise is each metric's own.
A fair coin then says which of a pair's two turns was the candidate's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.gate.decision.signed_rank import Floats

Shape = Callable[[np.random.Generator, int, int, int], Floats]
SPREAD = 0.025  # of one turn's log time, unless the shape says otherwise: 3.5 % for a pair


def normal(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """Nothing but independent normal noise: [gates, metrics, turns] log times, as all shapes."""
    return generator.normal(0, SPREAD, (gates, metrics, turns))


def heavy_tail(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """Student's t with two degrees of freedom: no variance; and one turn in 20 far too slow."""
    size = (gates, metrics, turns)
    spikes = (generator.random(size) < 0.05) * generator.lognormal(-1.5, 1, size)
    return 0.015 * generator.standard_t(2, size) + spikes


def drift(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """The machine slows by 30 % over the run, in waves, while its noise triples."""
    time = np.linspace(0, 1, turns)
    waves = 0.05 * np.sin(2 * np.pi * (9 * time + generator.random((gates, 1, 1))))
    growing = SPREAD * (0.5 + time) * generator.normal(size=(gates, metrics, turns))
    found: Floats = 0.26 * time + waves + growing
    return found


def two_speeds(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """Now and then the machine is half as fast for ten turns or so; it may switch inside a pair."""
    slow = np.zeros((gates, turns), dtype=bool)
    for turn in range(1, turns):
        chance = np.where(slow[:, turn - 1], 0.1, 0.03)
        slow[:, turn] = slow[:, turn - 1] ^ (generator.random(gates) < chance)
    return np.log(2) * slow[:, None] + normal(generator, gates, metrics, turns)


def memory(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """Each turn's state is 95 % of the one before, give or take 2 %."""
    state = np.zeros((gates, 1, turns))
    for turn in range(1, turns):
        state[..., turn] = 0.95 * state[..., turn - 1] + generator.normal(0, 0.02, (gates, 1))
    return state + 0.5 * normal(generator, gates, metrics, turns)


def second_slower(generator: np.random.Generator, gates: int, metrics: int, turns: int) -> Floats:
    """Whoever answers second in a pair takes 4 % longer."""
    return 0.04 * (np.arange(turns) % 2) + normal(generator, gates, metrics, turns)


SHAPES: dict[str, Shape] = {
    "normal": normal,
    "heavy tail": heavy_tail,
    "drift": drift,
    "two speeds": two_speeds,
    "memory": memory,
    "second slower": second_slower,
}


def gates(
    shape: Shape, generator: np.random.Generator, number: int, size: tuple[int, int]
) -> Floats:
    """Return the pairs of gates of two equal versions.

    Args:
        shape: The noise.
        generator: The only source of randomness.
        number: Gates.
        size: Metrics, and pairs of each.

    Returns:
        [gates, metrics, pairs] log(candidate / reference).
    """
    metrics, pairs = size
    turns = shape(generator, number, metrics, 2 * pairs)
    coins = generator.choice([-1.0, 1.0], (number, 1, pairs))
    return coins * (turns[..., ::2] - turns[..., 1::2])
