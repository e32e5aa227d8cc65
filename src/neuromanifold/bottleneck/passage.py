"""One pass of a sample through an MLP: what the bounds of this room are made of, in float64 on the
host.

α_0 = x,  α̃_l = W_l α_{l-1} + b_l,  α_l = σ(α̃_l),  D_l = diag σ'(α̃_l),  Jf = D_L W_L ⋯ D_1 W_1.

Weights carry the scale 1/√fan_in of NTK scaling, so every norm here is the norm of what multiplies
the activations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.activation import activation_slope, apply_activation, per_neuron
from neuromanifold.models.arguments import Samples
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.precision import arithmetic, is_traced
from neuromanifold.numerics.validation import check_params, check_sample


@dataclass(frozen=True)
class Passage:
    """Weights and biases, and at each sample the activations α_0 … α_{L-1}, pre-activations α̃_1
    … α̃_L and slopes D_1 … D_L.
    """

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray | None, ...]
    activations: tuple[np.ndarray, ...]
    preactivations: tuple[np.ndarray, ...]
    slopes: tuple[np.ndarray, ...]

    @property
    def depth(self) -> int:
        """L, the number of affine layers."""
        return len(self.weights)

    @property
    def squared_norms(self) -> Float[np.ndarray, " L"]:
        """‖W_l‖²_F + ‖b_l‖² of each layer; their sum is ‖θ‖²."""
        return np.array([np.sum(W**2) for W in self.weights]) + self.bias_norms

    @property
    def bias_norms(self) -> Float[np.ndarray, " L"]:
        """‖b_l‖² of each layer."""
        return np.array([0.0 if b is None else np.sum(b**2) for b in self.biases])

    def at(self, sample: int) -> "Passage":
        """The passage of one sample."""
        one = slice(sample, sample + 1)
        cut = (
            tuple(a[one] for a in group)
            for group in (self.activations, self.preactivations, self.slopes)
        )
        return Passage(self.weights, self.biases, *cut)

    def forward_jacobians(self) -> Iterator[Float[np.ndarray, "n _ d"]]:
        """Jα_0 = 1, Jα_1, …, Jα_L = Jf, one after the other."""
        n, d = self.activations[0].shape
        J = np.broadcast_to(np.eye(d), (n, d, d))
        yield J
        for W, slope in zip(self.weights, self.slopes, strict=True):
            J = slope[:, :, None] * (W @ J)
            yield J

    def backward_jacobians(self) -> tuple[Float[np.ndarray, "n o _"], ...]:
        """J(α̃_l → f) for l = 1 … L."""
        B = np.eye(self.slopes[-1].shape[1])[None] * self.slopes[-1][:, None, :]
        found = [B]
        for W, slope in zip(self.weights[:0:-1], self.slopes[-2::-1], strict=True):
            B = (B @ W) * slope[:, None, :]
            found.append(B)
        return tuple(reversed(found))

    def jacobian(self) -> Float[np.ndarray, "n o d"]:
        """Jf(x) at each sample, the shorter way round."""
        if self.weights[0].shape[1] <= self.weights[-1].shape[0]:
            *_, J = self.forward_jacobians()
            return np.asarray(J)
        return self.backward_jacobians()[0] @ self.weights[0]


def passage(net: MLP, params: Params, x: Samples) -> Passage:
    """The sample's passage through the network, in float64; refuses bad arguments in one
    sentence.
    """
    require_perceptron(net, "the bottleneck is a property of layers, pass an nm.MLP")
    if is_traced((params, x)):
        raise TypeError(
            "`params` and `x` must have values here; call this outside jit, vmap and grad."
        )
    check_params(params)
    check_sample(x)
    net.check(params, x)
    x = np.asarray(x, np.float64)
    layers = tuple(
        Layer(*(None if a is None else np.asarray(a, np.float64) for a in layer))
        for layer in params
    )
    weights = tuple(
        layer.weight * scale for layer, scale in zip(layers, net.weight_scales, strict=True)
    )
    biases = tuple(layer.bias for layer in layers)
    step = _piecewise_linear if _has_declared_slopes(net) else _differentiate
    activations, preactivations, slopes = [x], [], []
    for weight, bias, entry in zip(weights, biases, net.activations, strict=True):
        z = activations[-1] @ weight.T + (0.0 if bias is None else bias)
        a, slope = step(entry, z)
        preactivations.append(z)
        activations.append(a)
        slopes.append(slope)
    return Passage(weights, biases, tuple(activations[:-1]), tuple(preactivations), tuple(slopes))


def _has_declared_slopes(net: MLP) -> bool:
    runs = [activation for entry in net.activations for activation, _ in per_neuron(entry, 1)]
    return all(a.slopes is not None and "slopes" not in a.measured for a in runs)


def _piecewise_linear(entry: Entry, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """σ(z) and σ'(z) without JAX: small networks spend nearly all their time in its dispatch
    otherwise.
    """
    slope = np.empty_like(z)
    for activation, neurons in per_neuron(entry, z.shape[1]):
        left, right = activation.slopes or (0.0, 0.0)
        slope[:, neurons] = np.where(z[:, neurons] > 0, right, left)
    return slope * z, slope


def _differentiate(entry: Entry, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """σ(z) and σ'(z) of any activation."""
    with arithmetic():
        moved = jnp.asarray(z, jnp.float64)
        return np.asarray(apply_activation(entry, moved)), np.asarray(
            activation_slope(entry, moved)
        )


def require_contraction(through: Passage) -> None:
    """Refuse slopes outside [−1, 1], for which no Jacobian bounds the norm of the weights."""
    for index, slope in enumerate(through.slopes):
        low, high = float(slope.min()), float(slope.max())
        if low < -1 or high > 1:
            raise ValueError(
                f"`net` has slopes from {low:.3g} to {high:.3g} in layer {index + 1}; the bounds "
                "need |σ'| ≤ 1, "
                "as for relu, leaky_relu, identity, tanh, sigmoid or softplus."
            )


def squared_norm(net: MLP, params: Params) -> float:
    """‖θ‖² = Σ ‖W_l‖²_F + ‖b_l‖², weights with their scale."""
    total = 0.0
    for layer, scale in zip(params, net.weight_scales, strict=True):
        total += float(np.sum((scale * np.asarray(layer.weight, np.float64)) ** 2))
        total += (
            0.0 if layer.bias is None else float(np.sum(np.asarray(layer.bias, np.float64) ** 2))
        )
    return total
