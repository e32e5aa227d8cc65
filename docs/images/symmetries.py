"""The reference networks of tests/symmetry/nets.py at five seeds each: orbit, nullity, names, gap, and how well a flow keeps f.

python docs/images/symmetries.py [seeds]        (five seeds: about a quarter of an hour on one core)
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from symmetry.nets import NETS

from neuromanifold import symmetry
from neuromanifold.numerics.precision import arithmetic


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
            f"| {name} | {net.size} | {_several(a.orbit for a in answers)} of {net.orbit} | {', '.join(names)} | "
            f"{_several(a.unnamed for a in answers)} | {_several(a.nullity for a in answers)} | {min(a.gap for a in answers):.0e} | "
            f"{max(off for _, off in found):.0e} | {all(a.decided for a in answers)} | {time.process_time() - start:.0f} s |",
            flush=True,
        )


def _several(values) -> str:
    values = list(values)
    return str(values[0]) if len(set(values)) == 1 else ", ".join(map(str, values))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
