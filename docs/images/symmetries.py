"""The reference networks of tests/symmetry/nets.py at five seeds each: orbit, nullity, names, gap,
and how well a flow keeps f.

python docs/images/symmetries.py [seeds]        (five seeds: about seven minutes of one core)
python docs/images/symmetries.py large          (a transformer with 4,992 parameters)
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from neuromanifold import symmetry
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS, attend, rms


def main(seeds: int) -> None:
    for name, net in NETS.items():
        found, start = [], time.process_time()
        for seed in range(seeds):
            params, x = net.draw(np.random.default_rng(seed))
            answer = symmetry.discover(net.f, params, x, key=jax.random.key(seed), batch=net.batch)
            with arithmetic():
                moved = answer.group.sample(key=jax.random.key(seed))(params)
                before, after = np.asarray(net.f(params, x)), np.asarray(net.f(moved, x))
            found.append((answer, np.abs(after - before).max() / np.abs(before).max()))
        answers = [answer for answer, _ in found]
        names = [f"{each.kind} {each.adds}" for each in answers[0].named]
        print(
            f"| {name} | {net.size} | {_several(a.orbit for a in answers)} of {net.orbit} | "
            f"{', '.join(names)} | "
            f"{_several(a.unnamed for a in answers)} | {_several(a.nullity for a in answers)} | "
            f"{min(a.gap for a in answers):.0e} | "
            f"{max(off for _, off in found):.0e} | {all(a.decided for a in answers)} | "
            f"{time.process_time() - start:.0f} s |",
            flush=True,
        )


def large() -> None:
    """Two blocks, d = 16, four heads of four, SwiGLU 24, T = 6, 20 inputs and outputs: names
    included in the time.
    """
    shapes = {
        "q": (16, 16),
        "k": (16, 16),
        "v": (16, 16),
        "o": (16, 16),
        "g": (16, 24),
        "u": (16, 24),
        "d": (24, 16),
    }
    shapes = {"e": (20, 16), "w": (16, 20)} | {
        f"{name}{k}": shape for k in (1, 2) for name, shape in shapes.items()
    }

    def f(p, x):
        h = x @ p["e"]
        for k in (1, 2):
            z = rms(h)
            h = h + attend(z @ p[f"q{k}"], z @ p[f"k{k}"], z @ p[f"v{k}"], p[f"o{k}"], 4)
            z = rms(h)
            h = h + (jax.nn.silu(z @ p[f"g{k}"]) * (z @ p[f"u{k}"])) @ p[f"d{k}"]
        return rms(h) @ p["w"]

    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    start, processor = time.perf_counter(), time.process_time()
    answer = symmetry.discover(f, params, rng.normal(size=(2, 6, 20)), key=jax.random.key(0))
    print(
        answer,
        f"\n{answer.candidates} candidates, {answer.unknowns} told apart, unnamed "
        f"{answer.unnamed}, orbits {answer.orbits}",
    )
    print(
        f"{time.perf_counter() - start:.0f} s, {time.process_time() - processor:.0f} s of "
        "processor time"
    )


def _several(values) -> str:
    values = list(values)
    return str(values[0]) if len(set(values)) == 1 else ", ".join(map(str, values))


if __name__ == "__main__":
    large() if "large" in sys.argv else main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
