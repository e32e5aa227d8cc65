"""neural-tangents' structured derivatives, the way they are fastest: jitted, `vmap_axes=0`,
weights stored (in, out).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from protocol import serve


def relu_mlp(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    *hidden, (weight, bias) = params
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weight + bias


def structured(arrays: str) -> Callable[[], jax.Array]:
    """The kernel of all outputs of the ReLU net stored in an npz with `x`, `weight0`, `bias0`, …"""
    stored = np.load(arrays)
    x = jnp.asarray(stored["x"])
    params = [
        (jnp.asarray(stored[f"weight{index}"].T), jnp.asarray(stored[f"bias{index}"]))
        for index in range((len(stored.files) - 1) // 2)
    ]
    kernel = jax.jit(
        nt.empirical_ntk_fn(
            relu_mlp,
            trace_axes=(),
            diagonal_axes=(),
            vmap_axes=0,
            implementation=nt.NtkImplementation.STRUCTURED_DERIVATIVES,
        )
    )

    def repetition() -> jax.Array:
        return kernel(x, None, params).block_until_ready()

    repetition()
    return repetition


if __name__ == "__main__":
    serve(
        {"structured": structured},
        summary=lambda kernel: float(np.linalg.norm(np.asarray(kernel, np.float64))),
    )
