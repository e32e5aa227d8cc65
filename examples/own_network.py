"""Any JAX function is a network: what a small convolutional one's parameters do, exactly.

Run `python examples/own_network.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm


def network(params: Any, x: Any) -> Any:
    """A convolution, ReLU, max-pooling, and a dense layer."""
    h = jax.lax.conv_general_dilated(
        x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = jax.nn.relu(h + params["bias"])
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return h.reshape(len(x), -1) @ params["dense"]


def main() -> None:
    """Draw parameters and images, and ask."""
    rng = np.random.default_rng(0)
    params = {
        "kernel": rng.normal(size=(3, 3, 1, 2)),
        "bias": rng.normal(size=2),
        "dense": rng.normal(size=(8, 3)),
    }
    x = rng.random((20, 4, 4, 1))
    print(nm.graph.trace(network, params, x))
    rank = nm.functional_dimension(network, params, x, exact=True)
    print(
        f"\nfunctional dimension {int(rank)} of {sum(a.size for a in params.values())} "
        f"parameters: {rank.certificate}"
    )
    print(nm.spectrum(network, params, x))


if __name__ == "__main__":
    main()
