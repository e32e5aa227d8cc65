"""Gradient flow keeps the balance of every ReLU neuron; gradient descent loses it by exactly
η²Q(∇L) a step.

Run `python examples/conserved.py`.
"""

import jax
import numpy as np

import neuromanifold as nm


def main() -> None:
    """Follow the flow of a small network and look at what it keeps."""
    net, x = nm.MLP((1, 4, 1)), np.linspace(-1, 1, 20)[:, None]
    params = net.init(key=jax.random.key(0), dtype="float64")
    flow = nm.gradient_flow(net, params, x, np.abs(x), t1=10.0)
    before = nm.conserved_quantities(net, params)
    after = nm.conserved_quantities(net, jax.tree.map(lambda a: a[-1], flow.params))
    print(flow)
    print("before", before)
    print("after ", after)
    print(f"largest change {np.abs(after.values - before.values).max():.1e}")


if __name__ == "__main__":
    main()
