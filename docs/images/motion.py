"""The recorded training behind *Moving pictures*: writes docs/assets/motion-data.js. Takes a
minute.

Run `python docs/images/motion.py`.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

import neuromanifold as nm

EPOCHS = (0, 5, 10, 20, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920)


RUNS = 12


def run(params: Any, r: int) -> Any:
    """The parameters of one run, in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[r], np.float64), params)


def main() -> None:
    """Train twelve 1-8-8-1 networks, stop at some epochs, and ask where the parameters of the
    best one are.
    """
    net = nm.MLP((1, 8, 8, 1), "relu")
    x = np.linspace(-1, 1, 60)[:, None].astype("float32")
    y = np.abs(np.sin(3 * x)).astype("float32")
    line = np.linspace(-1, 1, 161)[:, None]
    stages = [net.init(key=jax.random.key(0), scheme=nm.init.he_bias, runs=RUNS)]
    for start, stop in pairwise(EPOCHS):
        key = jax.random.key(stop)
        stages.append(
            nm.train(net, stages[-1], x, y, key=key, epochs=stop - start, batch_size=20).params
        )
    errors = [np.mean((np.asarray(net(run(stages[-1], r), x)) - y) ** 2) for r in range(RUNS)]
    frames = []
    for stop, params in zip(EPOCHS, stages, strict=True):
        one = run(params, int(np.argmin(errors)))
        account = nm.dimension_account(net, one, x)
        first = np.asarray(one[0].weight)[:, 0], np.asarray(one[0].bias)
        kinks = [round(float(-b / w), 4) for w, b in zip(*first, strict=True) if abs(b) < abs(w)]
        frames.append(
            {
                "epoch": stop,
                "f": [round(float(v), 4) for v in np.asarray(net(one, line)).ravel()],
                "kinks": kinks,
                "regions": int(nm.sampled_regions(net, one, x)),
                "account": [[name, int(count)] for name, count in account.rows if count],
            }
        )
    target = [round(float(v), 4) for v in np.abs(np.sin(3 * line)).ravel()]
    record = {"parameters": net.n_params, "target": target, "frames": frames}
    text = json.dumps(record, separators=(",", ":"))
    Path(__file__).parents[1].joinpath("assets", "motion-data.js").write_text(
        f"window.MOTION={text};\n"
    )


if __name__ == "__main__":
    main()
