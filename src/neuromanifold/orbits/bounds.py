"""Upper bounds for the closure: the linear forms that are known to vanish on it."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm, prod
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.activation import per_neuron
from neuromanifold.models.arguments import Model
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import filters, perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold.numerics.results import Result
from neuromanifold.orbits.partition import flatten_on_host, invariant_leaf
from neuromanifold.orbits.rings import Reals, Residues, Ring
from neuromanifold.symmetry.conservation.conserved import quadratic_laws
from neuromanifold.symmetry.groups.neurons import by_neuron, hidden_property, is_real, linear_slope
from neuromanifold.tangent.rank.fields import ParameterLayout
from neuromanifold.tangent.rank.jacobian import n_columns


@dataclass(frozen=True, repr=False)
class UpperBound(Result):
    """No closure has more than `value` dimensions here, and why."""

    value: int
    reason: str


def closure_upper_bound(f: Model, params: Any, ring: Ring | None = None) -> UpperBound:
    """Return D less the number of independent linear forms that vanish on every field of the orbit,
    and so on Lie_θ.

    Of a network these are: the equations of its symmetry leaf [invariant, Thm 4.2 (i), (ii)];
    parameters that zero neurons freeze, and what moves together because neurons have become
    constants [Thm 4.2 (iii), (iv)]; combinations of linear neurons that vanish on both sides;
    gradients of conserved quantities. A network that is one function of x times one function of θ
    has at most one dimension. Computed over `ring`: modulo a prime the rank can only be too small,
    so the bound remains one.

    >>> net = nm.MLP((1, 2, 1), "exp", bias=False)
    >>> closure_upper_bound(net, (nm.Layer(np.ones((2, 1))), nm.Layer(np.ones((1, 2)))))
    UpperBound(value 2, reason 'the symmetry leaf has dimension 2')
    """
    ring = Reals() if ring is None else ring
    if (net := perceptron(f)) is not None:
        return _of_network(net, params, ring)
    if (net := filters(f)) is not None and net.is_linear:
        forms = filter_forms(net, params, ring)
        rank = _rank(forms, ring)
        return UpperBound(
            net.n_params - rank, f"{net.n_params} parameters less {rank} conserved quantities"
        )
    return UpperBound(n_columns(params), f"there are {n_columns(params)} parameters")


def _of_network(net: MLP, params: Params, ring: Ring) -> UpperBound:
    leaf = invariant_leaf(net, params)
    value, reasons = leaf.dimension, []
    if leaf.dimension < net.n_params:
        reasons.append(f"the symmetry leaf has dimension {leaf.dimension}")
    directions = ring.embed(np.sign(leaf.basis)).T
    forms = np.zeros((0, leaf.dimension), directions.dtype)
    for name, rows in (
        ("frozen by zero neurons", frozen_forms(net, params, ring)),
        ("bound together by constant neurons", constant_forms(net, params, ring)),
        ("held zero by dependent linear neurons", dependent_forms(net, params, ring)),
        ("given up to conserved quantities", conserved_forms(net, params, ring)),
    ):
        forms = np.concatenate([forms, ring.matmul(rows, directions)])
        rank = _rank(forms, ring)
        if leaf.dimension - rank < value:
            reasons.append(f"{value - leaf.dimension + rank} {name}")
            value = leaf.dimension - rank
    if value > 1 and is_single_function(net):
        return UpperBound(1, "f is one function of x times one function of θ")
    return UpperBound(value, ", ".join(reasons) or f"there are {net.n_params} parameters")


def _rank(rows: np.ndarray, ring: Ring) -> int:
    if isinstance(ring, Residues):
        return modular_rank(rows, ring.p)
    norms = np.linalg.norm(rows, axis=1)
    return int(numerical_rank(rows[norms > 0] / norms[norms > 0, None]))


def is_single_function(net: MLP) -> bool:
    """Whether f_θ(x) = x^d g(θ): one input, one output, no biases, every activation a monomial."""
    activations = [a for entry in net.activations for a, _ in per_neuron(entry, 1)]
    return (
        net.widths[0] == net.widths[-1] == 1
        and not net.bias
        and all(is_real(a) for a in activations)
    )


@dataclass(frozen=True, repr=False)
class ZeroNeurons(Result):
    """By layer, inputs included: neurons whose input, value or gradient vanishes on a whole
    invariant manifold.
    """

    idle: tuple[np.ndarray, ...]
    silent: tuple[np.ndarray, ...]
    untaught: tuple[np.ndarray, ...]


def zero_neurons(net: MLP, params: Params) -> ZeroNeurons:
    """The largest sets of neurons that remain zero because they are zero.
    [invariant, Thm 4.2 (iii), (iv)]

    idle:      z_i = 0, since incoming weights are zero or come from silent neurons, and stay so
    since i is untaught
               (or all that comes in is silent);
    silent:    a_i = 0: idle with σ(0) = 0;
    untaught:  ∂f/∂z_i = 0: idle with σ'(0) = 0, or outgoing weights are zero or lead to untaught
    neurons, and
               stay so since i is silent.
    """
    layers = list(zip(net.activations, net.widths[1:], strict=True))
    at_zero = [
        np.zeros(net.widths[0], bool),
        *(by_neuron(e, w, lambda a: a.at_zero == 0) for e, w in layers),
    ]
    flat = [
        np.zeros(net.widths[0], bool),
        *(by_neuron(e, w, lambda a: a.slope_at_zero == 0) for e, w in layers),
    ]
    weights = [np.asarray(layer.weight) == 0 for layer in params]
    biases = [True if layer.bias is None else np.asarray(layer.bias) == 0 for layer in params]
    idle = [np.zeros(net.widths[0], bool), *(np.ones(w, bool) for w in net.widths[1:])]
    untaught = [np.zeros(net.widths[0], bool), *(np.ones(w, bool) for w in net.widths[1:])]
    while True:
        silent = [i & z for i, z in zip(idle, at_zero, strict=True)]
        new_idle, new_untaught = [idle[0]], [untaught[0]]
        for l in range(1, len(idle)):
            comes_in = (weights[l - 1] | silent[l - 1]).all(axis=1) & biases[l - 1]
            stays = untaught[l] | (silent[l - 1].all() and not net.bias)
            new_idle.append(idle[l] & comes_in & stays)
            goes_out = (
                silent[l] & (weights[l] | untaught[l + 1][:, None]).all(axis=0)
                if l < net.depth
                else False
            )
            new_untaught.append(untaught[l] & (idle[l] & flat[l] | goes_out))
        same = all(
            np.array_equal(a, b)
            for a, b in zip(idle + untaught, new_idle + new_untaught, strict=True)
        )
        idle, untaught = new_idle, new_untaught
        if same:
            return ZeroNeurons(tuple(idle), tuple(silent), tuple(untaught))


def frozen_forms(net: MLP, params: Params, ring: Ring) -> np.ndarray:
    """The coordinates that cannot change: ∂f/∂W_ij = δ_i a_j with i untaught or j silent,
    ∂f/∂b_i with i untaught.
    """
    zero, masks = zero_neurons(net, params), []
    for l in range(1, net.depth + 1):
        masks.append((zero.untaught[l][:, None] | zero.silent[l - 1]).ravel())
        masks.append(zero.untaught[l] if net.bias else np.zeros(0, bool))
    return ring.embed(np.eye(net.n_params)[np.concatenate(masks)])


def constant_forms(net: MLP, params: Params, ring: Ring) -> np.ndarray:
    """What weights from constant neurons keep: idle ones have a_i = σ_i(0), so  ∂f/∂W_ki =
    σ_i(0) δ_k, and ∂f/∂b_k = δ_k.
    """
    zero, forms = zero_neurons(net, params), []
    weights, biases = _coordinates(net)
    for l in range(1, net.depth):
        values = by_neuron(net.activation[l - 1], net.widths[l], lambda a: a.at_zero)
        constant = np.flatnonzero(zero.idle[l] & (values != 0))
        for k in range(net.widths[l + 1]):
            rates = [(weights[l][k, i], values[i]) for i in constant]
            rates += [(biases[l][k], 1.0)] if net.bias else []
            for (one, rate), (other, other_rate) in pairwise(rates):
                form = np.zeros(net.n_params)
                form[one], form[other] = other_rate, -rate
                forms.append(form)
    return ring.embed(np.array(forms).reshape(-1, net.n_params))


def dependent_forms(net: MLP, params: Params, ring: Ring) -> np.ndarray:
    """Linear neurons of one layer and slope with  cᵀ(W b) = 0  and  Vc = 0  keep both: ∂W = Vᵀδaᵀ
    and ∂V = δ(Wa + b)ᵀ.

    The kernel is computed in rational arithmetic, since parameters are dyadic rationals.
    """
    weights, biases = _coordinates(net)
    flat = flatten_on_host(params)
    forms = [ring.embed(np.zeros((0, net.n_params)))]
    for l, slopes in enumerate(hidden_property(net, linear_slope)):
        for slope in np.unique(slopes[~np.isnan(slopes)]):
            neurons = np.flatnonzero(slopes == slope)
            places = [
                weights[l][neurons],
                weights[l + 1][:, neurons].T,
                biases[l][neurons, None] if net.bias else None,
            ]
            place = np.concatenate([part for part in places if part is not None], axis=1)
            for c in left_kernel(flat[place]):
                rows = np.zeros((place.shape[1], net.n_params), forms[0].dtype)
                rows[np.arange(place.shape[1]), place] = ring.embed_whole(c)[:, None]
                forms.append(rows)
    return np.concatenate(forms)


def conserved_forms(net: MLP, params: Params, ring: Ring) -> np.ndarray:
    """Gradients of the quantities of `nm.conserved_quantities`, over the ring."""
    flat = ring.embed(flatten_on_host(params))
    weights, biases = _coordinates(net)
    forms = []
    for l in range(net.depth - 1):
        for _, i, j, factor in quadratic_laws(net, l):
            form = np.zeros(net.n_params, flat.dtype)
            incoming = [(weights[l][i], weights[l][j])] + (
                [(biases[l][[i]], biases[l][[j]])] if net.bias else []
            )
            pairs = [
                (weights[l + 1][:, i], weights[l + 1][:, j], factor),
                *((a, b, -1.0) for a, b in incoming),
            ]
            for a, b, sign in pairs:
                sign = ring.embed(np.array([sign]))
                form[a] = ring.add(form[a], ring.multiply(flat[b], sign))
                form[b] = ring.add(form[b], ring.multiply(flat[a], sign))
            forms.append(form)
    return np.array(forms, flat.dtype).reshape(-1, net.n_params)


def filter_forms(net: LinearConvNet, params: Any, ring: Ring) -> np.ndarray:
    """Gradients of ‖w_{l+1}‖² − ‖w_l‖², halved."""
    filters = [ring.embed(np.asarray(w, np.float64).ravel()) for w in params]
    starts = np.cumsum([0, *(prod(shape) for shape in net.filter_shapes)])
    forms = np.zeros((net.depth - 1, net.n_params), filters[0].dtype)
    for l in range(net.depth - 1):
        forms[l, starts[l] : starts[l + 1]] = ring.negate(filters[l])
        forms[l, starts[l + 1] : starts[l + 2]] = filters[l + 1]
    return forms


def left_kernel(matrix: Float[np.ndarray, "m n"]) -> list[list[int]]:
    """Whole vectors c that span  {c : cᵀM = 0},  exactly: floats are dyadic rationals.

    >>> left_kernel(np.array([[0.5, 1.0], [0.25, 0.5]]))
    [[1, -2]]
    """
    import flint

    p = modular.random_prime()
    if modular_rank(modular.from_floats(matrix, p), p) == len(matrix):
        return []
    kernel, nullity = flint.fmpz_mat([_whole(column) for column in matrix.T]).nullspace()
    columns = [[int(kernel[i, j]) for i in range(len(matrix))] for j in range(nullity)]
    return [_primitive(column) for column in columns]


def _whole(column: np.ndarray) -> list[int]:
    """A multiple of the column in whole numbers."""
    fractions = [Fraction(float(entry)) for entry in column]
    scale = lcm(*(f.denominator for f in fractions))
    return [int(f * scale) for f in fractions]


def _primitive(vector: list[int]) -> list[int]:
    """Without common factors, the first nonzero entry positive."""
    divisor = gcd(*vector) * (-1 if next(v for v in vector if v) < 0 else 1)
    return [v // divisor for v in vector]


def _coordinates(net: MLP) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Where each weight (out, in) and bias (out) stands in `ravel_pytree` order."""
    layout = ParameterLayout(net)
    return [layout.weight(l) for l in range(net.depth)], [layout.bias(l) for l in range(net.depth)]
