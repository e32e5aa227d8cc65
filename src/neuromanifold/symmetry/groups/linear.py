"""Groups of linear neurons: general linear, affine, orthogonal."""

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.symmetry.groups import neurons
from neuromanifold.symmetry.groups.base import ContinuousGroup, check_net, namespace
from neuromanifold.symmetry.groups.dense import AffineElement
from neuromanifold.tangent.rank.fields import (
    ParameterLayout,
    VectorFields,
    join,
    mixing,
    translation,
)

_TERMS, _SQUARINGS = 12, 6


class _LinearGroup(ContinuousGroup):
    """What the groups of linear neurons share: neurons with σ(z) = s_i z, mixed by A = exp(ΞS)
    and B = exp(SΞ) = SAS⁻¹.
    """

    net: MLP

    @cached_property
    def neurons(self) -> tuple[np.ndarray, ...]:
        """The linear neurons of each hidden layer."""
        return tuple(neurons.linear_neurons(self.net))

    @cached_property
    def slopes(self) -> tuple[np.ndarray, ...]:
        """Their slopes s."""
        found = neurons.hidden_property(self.net, neurons.linear_slope)
        return tuple(s[chosen] for s, chosen in zip(found, self.neurons, strict=True))

    def clip(self, coordinates: Any, bound: float) -> Any:
        """Γ multiplies by one A and one A⁻¹, each at most exp‖ΞS‖: ‖Ξ‖ ≤ log(bound)/(2 max|s|)
        in each layer (translations counted in).
        """
        parts = []
        for s, part in zip(self.slopes, self._by_layer(coordinates), strict=True):
            limit = np.log(bound) / 2 / max(1.0, np.abs(s).max(initial=0.0))
            norm = jnp.linalg.norm(part)
            parts.append(
                part * jnp.where(norm > limit, limit / jnp.where(norm > 0, norm, 1.0), 1.0)
            )
        return jnp.concatenate(parts)

    @property
    @abc.abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each hidden layer."""

    def _by_layer(self, coordinates: Any) -> list[Any]:
        stops = np.cumsum(self.sizes).tolist()
        return [coordinates[b - n : b] for b, n in zip(stops, self.sizes, strict=True)]

    def _dense(self, mixers: list[Any], shifts: list[Any] | None = None) -> AffineElement:
        """Return the element that acts by z' = Az + t on the linear neurons and leaves the others."""
        into, out, shift_in, shift_out = [], [], [], []
        for index, (chosen, s, matrix) in enumerate(
            zip(self.neurons, self.slopes, mixers, strict=True)
        ):
            place = np.eye(self.net.widths[index + 1])[:, chosen]
            others = np.eye(len(place)) - place @ place.T
            shift = np.zeros(len(s)) if shifts is None else shifts[index]
            into.append(others + place @ matrix @ place.T)
            out.append(others + place @ (s[:, None] * matrix / s) @ place.T)
            shift_in.append(place @ shift)
            shift_out.append(place @ (s * shift))
        return AffineElement(
            tuple(into), tuple(out), tuple(shift_in), tuple(shift_out), self.net.weight_scales
        )

    def _mixing_fields(self) -> list[list[VectorFields]]:
        """Return for each layer the fields δ(W, b)_i = s_j (W, b)_j, δV_{·j} = −s_i V_{·i}, (i, j)
        in row-major order.
        """
        layout = ParameterLayout(self.net)
        return [
            [
                mixing(layout, layer, i, j, float(s[b]), float(s[a]))
                for a, i in enumerate(chosen.tolist())
                for b, j in enumerate(chosen.tolist())
            ]
            for layer, (chosen, s) in enumerate(zip(self.neurons, self.slopes, strict=True))
        ]


def _check_linear(net: Any, group: str) -> None:
    check_net(net, group)
    neurons.require(
        net, group, neurons.is_linear, "is not linear", "hidden neurons with activation identity"
    )


@dataclass(frozen=True)
class GeneralLinearGroup(_LinearGroup):
    """GL of the linear neurons of each hidden layer: (W_l, b_l) ↦ (g_l W_l g_{l-1}⁻¹, g_l b_l).
    [complexity, Eq. 3]

    Coordinates are the entries of Ξ, row by row, layer by layer, with g = exp Ξ for the identity
    activation.

    >>> nm.symmetry.GeneralLinearGroup(nm.MLP((2, 3, 2), "identity")).dimension
    9
    """

    net: MLP

    def __post_init__(self):
        _check_linear(self.net, "GeneralLinearGroup")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each hidden layer."""
        return tuple(len(s) ** 2 for s in self.slopes)

    @cached_property
    def fields(self) -> VectorFields:
        """δ(W, b)_i = s_j (W, b)_j, δV_{·j} = −s_i V_{·i}."""
        return join(self.net, [field for layer in self._mixing_fields() for field in layer])

    def exponential(self, coordinates: Any) -> AffineElement:
        """Return A = exp(ΞS) for `coordinates` Ξ."""
        layers = zip(self.slopes, self._by_layer(coordinates), strict=True)
        return self._dense([_expm(part.reshape(len(s), len(s)) * s) for s, part in layers])

    def sample(self, *, key: Key) -> AffineElement:
        """Draw U diag(e^u) V with U, V Haar-orthogonal and u uniform in [−½, ½]: both components,
        condition number ≤ e.
        """
        rng = host_generator(key)
        return self._dense([random_invertible(rng, len(s)) for s in self.slopes])


@dataclass(frozen=True)
class AffineGroup(_LinearGroup):
    """GL with translations of the linear neurons of each hidden layer: z ↦ gz + t, undone by the
    next layer.

    b_l ↦ g_l b_l + t_l and b_{l+1} ↦ b_{l+1} − W_{l+1} g_l⁻¹ t_l. Needs biases. For each layer the
    coordinates are those of GL followed by the translation.

    >>> nm.symmetry.AffineGroup(nm.MLP((2, 3, 2), "identity")).dimension
    12
    """

    net: MLP

    def __post_init__(self):
        _check_linear(self.net, "AffineGroup")
        if not self.net.bias:
            raise ValueError(
                f"`net` is {self.net}, which has no biases to translate; AffineGroup needs "
                "bias=True: use GeneralLinearGroup."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each hidden layer."""
        return tuple(len(s) ** 2 + len(s) for s in self.slopes)

    @cached_property
    def fields(self) -> VectorFields:
        """Those of GL, then δb_i = 1, δb_next = −s_i V_{·i}, layer by layer."""
        layout, parts = ParameterLayout(self.net), []
        for layer, mixers in enumerate(self._mixing_fields()):
            parts += mixers
            parts += [
                translation(layout, layer, int(i), float(s))
                for i, s in zip(self.neurons[layer], self.slopes[layer], strict=True)
            ]
        return join(self.net, parts)

    def exponential(self, coordinates: Any) -> AffineElement:
        """Return the exponential of [[ΞS, τ], [0, 0]], the `coordinates` being Ξ and τ."""
        mixers, shifts = [], []
        for s, part in zip(self.slopes, self._by_layer(coordinates), strict=True):
            k = len(s)
            block, shift = part[: k * k].reshape(k, k) * s, part[k * k :]
            concatenate = namespace(block).concatenate
            top = concatenate([block, shift[:, None]], axis=1)
            full = _expm(concatenate([top, np.zeros((1, k + 1), block.dtype)]))
            mixers.append(full[:k, :k])
            shifts.append(full[:k, k])
        return self._dense(mixers, shifts)

    def sample(self, *, key: Key) -> AffineElement:
        """Draw an element of GL as there, and a standard normal translation."""
        rng = host_generator(key)
        mixers = [random_invertible(rng, len(s)) for s in self.slopes]
        return self._dense(mixers, [rng.standard_normal(len(s)) for s in self.slopes])


@dataclass(frozen=True)
class OrthogonalGroup(_LinearGroup):
    """O(k) of the k linear neurons of each hidden layer, a subgroup of GL.   [riemann, Thm 14]

    It preserves ‖θ‖ and every gradient norm, so nothing is gained by teleporting with it.
    Coordinates are the entries of the antisymmetric Ξ above the diagonal. Linear neurons of one
    layer must share their slope.

    >>> nm.symmetry.OrthogonalGroup(nm.MLP((2, 3, 2), "identity")).dimension
    3
    """

    net: MLP

    def __post_init__(self):
        _check_linear(self.net, "OrthogonalGroup")
        for index, s in enumerate(self.slopes):
            if len(set(s.tolist())) > 1:
                raise ValueError(
                    f"`net` has linear neurons of slopes {sorted(set(s.tolist()))} in hidden "
                    f"layer {index + 1}; "
                    "OrthogonalGroup needs one slope in each layer: use GeneralLinearGroup."
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each hidden layer."""
        return tuple(len(s) * (len(s) - 1) // 2 for s in self.slopes)

    @cached_property
    def fields(self) -> VectorFields:
        """X_ij − X_ji for i < j, X the fields of GL."""
        parts = []
        for mixers, s in zip(self._mixing_fields(), self.slopes, strict=True):
            k = len(s)
            rows = [(a * k + b, b * k + a) for a in range(k) for b in range(a + 1, k)]
            combination = np.zeros((len(rows), k * k), np.int64)
            for row, (above, below) in enumerate(rows):
                combination[row, above], combination[row, below] = 1, -1
            parts.append(join(self.net, mixers).combine(combination))
        return join(self.net, parts)

    def exponential(self, coordinates: Any) -> AffineElement:
        """Return A = exp(s(Ξ − Ξᵀ)) for `coordinates` Ξ."""
        mixers = []
        for s, part in zip(self.slopes, self._by_layer(coordinates), strict=True):
            k, above = len(s), np.triu_indices(len(s), 1)
            basis = np.zeros((len(above[0]), k, k), coordinates.dtype)
            basis[np.arange(len(above[0])), *above] = 1
            upper = (part @ basis.reshape(-1, k * k)).reshape(k, k)
            mixers.append(_expm((upper - upper.T) * s))
        return self._dense(mixers)

    def sample(self, *, key: Key) -> AffineElement:
        """Draw a Haar-random element."""
        rng = host_generator(key)
        return self._dense([_random_orthogonal(rng, len(s)) for s in self.slopes])


def _expm(matrix: Any) -> Any:
    """Return exp of a small matrix. For tracers: Taylor's polynomial at 2⁻⁶ of it, squared six
    times; accurate for norms up to 16.
    """
    if isinstance(matrix, np.ndarray):
        from scipy.linalg import expm

        return expm(matrix)
    eye = jnp.eye(len(matrix), dtype=matrix.dtype)
    power, small = eye, matrix / 2**_SQUARINGS
    for k in range(_TERMS, 0, -1):
        power = eye + small @ power / k
    for _ in range(_SQUARINGS):
        power = power @ power
    return power


def random_invertible(rng: np.random.Generator, n: int) -> Float[np.ndarray, "n n"]:
    """Draw U diag(e^u) V with U, V Haar-orthogonal and u uniform in [−½, ½]."""
    U, V = _random_orthogonal(rng, n), _random_orthogonal(rng, n)
    return (U * np.exp(rng.uniform(-0.5, 0.5, n))) @ V


def _random_orthogonal(rng: np.random.Generator, n: int) -> Float[np.ndarray, "n n"]:
    Q, R = np.linalg.qr(rng.standard_normal((n, n)))
    return Q * np.sign(np.diagonal(R))
