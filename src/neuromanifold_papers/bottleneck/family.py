"""`DepthFamily`: networks of different depths as one model, so that they train side by side."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.init import Layer, Scheme
from neuromanifold.models.mlp import MLP, Params


@dataclass(frozen=True)
class DepthFamily:
    """ReLU networks (input, width, …, width, output), one of each depth, with parameters of one
    common shape.

    The hidden matrices of all depths are stacked to the deepest; `params["open"]` says which of
    them a network has, and the others pass their input on. Depth becomes an entry of the parameters
    instead of a shape, so that networks of all depths are one batch of matrix products. `open` is
    no parameter: its gradient is zero, and `train_ridge` keeps it fixed.

    >>> from neuromanifold_papers.bottleneck.family import DepthFamily
    >>> family = DepthFamily(input=2, width=3, output=1, depths=(2, 4))
    >>> params = family.init(key=jax.random.key(0))
    >>> x = np.ones((5, 2), np.float32)
    >>> [net.depth for net, _ in family.members(params)]
    [2, 4]
    >>> stacked = jax.vmap(family, in_axes=(0, None))(params, x)
    >>> all(np.allclose(net(p, x), y, atol=1e-6) for (net, p), y in zip(family.members(params), stacked))
    True
    """

    input: int
    width: int
    output: int
    depths: tuple[int, ...]

    def __post_init__(self):
        if not self.depths or min(self.depths) < 2:
            raise ValueError(f"`depths` is {self.depths}; pass at least one, each 2 or more.")

    @property
    def networks(self) -> tuple[MLP, ...]:
        """The network of each depth."""
        return tuple(
            MLP((self.input, *[self.width] * (depth - 1), self.output)) for depth in self.depths
        )

    @property
    def _hidden(self) -> int:
        return max(self.depths) - 2

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x) of one member."""
        first, hidden, last = params["first"], params["hidden"], params["last"]

        def layer(h: Any, entry: Any):
            weight, bias, is_open = entry
            return jnp.where(is_open > 0, jax.nn.relu(h @ weight.T + bias), h), None

        h = jax.nn.relu(jnp.asarray(x) @ first.weight.T + first.bias)
        h, _ = jax.lax.scan(layer, h, (hidden.weight, hidden.bias, params["open"]))
        return h @ last.weight.T + last.bias

    def init(self, *, key: Any, scheme: str | Scheme = "he") -> Any:
        """One member of each depth, on a leading axis; drawn as `MLP.init` draws them."""
        keys = jax.random.split(key, len(self.depths))
        return self.stack(
            [net.init(key=k, scheme=scheme) for net, k in zip(self.networks, keys, strict=True)]
        )

    def stack(self, members: list[Params]) -> Any:
        """The parameters of one network of each depth, as those of the family."""
        return jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(self._padded(params) for params in members)
        )

    def _padded(self, params: Params) -> Any:
        first, *hidden, last = params
        closed, w = self._hidden - len(hidden), self.width
        dtype = np.asarray(first.weight).dtype
        weight = (
            jnp.stack([layer.weight for layer in hidden]) if hidden else jnp.zeros((0, w, w), dtype)
        )
        bias = jnp.stack([layer.bias for layer in hidden]) if hidden else jnp.zeros((0, w), dtype)
        return {
            "first": first,
            "hidden": Layer(
                jnp.concatenate([weight, jnp.zeros((closed, w, w), dtype)]),
                jnp.concatenate([bias, jnp.zeros((closed, w), dtype)]),
            ),
            "last": last,
            "open": (jnp.arange(self._hidden) < len(hidden)).astype(dtype),
        }

    def members(self, params: Any) -> tuple[tuple[MLP, Params], ...]:
        """Each network with its own parameters, as NumPy arrays."""
        host = jax.tree.map(np.asarray, params)
        found = []
        for index, (net, depth) in enumerate(zip(self.networks, self.depths, strict=True)):
            first, hidden, last = (
                jax.tree.map(lambda a, i=index: a[i], host[k]) for k in ("first", "hidden", "last")
            )
            layers = [Layer(hidden.weight[j], hidden.bias[j]) for j in range(depth - 2)]
            found.append((net, (first, *layers, last)))
        return tuple(found)
