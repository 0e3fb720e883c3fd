"""How many float32 multiply-adds a second one core does: the floor under a step's products.

python -m experiments.engine_speed.fma_peak
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

from verify.native.build import FLAGS, find_compiler

ROUNDS, REPEATS, CHAINS = 20_000_000, 7, 12


def main() -> None:
    """Compile the loop, time it, and print the best of a few runs."""
    source = Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "fma_peak.so"
        command = [find_compiler() or "cc", *FLAGS, "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        code = ctypes.CDLL(str(library))
    code.fma_loop.argtypes = [ctypes.c_int64, ctypes.c_float]
    code.fma_lanes.restype = ctypes.c_int64
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        code.fma_loop(ROUNDS, 0.5)
        seconds.append(time.perf_counter() - began)
    done = ROUNDS * CHAINS * code.fma_lanes()
    print(f"{code.fma_lanes()} lanes: {done / min(seconds) / 1e9:.1f} G multiply-adds a second")


if __name__ == "__main__":
    main()
