"""Bounds on the functional dimension against exact ranks of integer networks, in which nothing
is rounded.
"""

import itertools
import pickle
from dataclasses import dataclass

import jax
import numpy as np
import pytest

import naive
import neuromanifold as nm
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.regions import (
    Bound,
    dimension_bounds,
    is_roughly_monotonic,
    region_bound,
    theorem1_bound,
)
from neuromanifold.regions.generic import orbit_directions

SCALARS = {"relu": naive.RELU, "abs": naive.ABS, "identity": naive.IDENTITY}
PAPER = (1, 10, 10, 10, 10, 1)
PRIME = 2**61 - 1


@dataclass(frozen=True)
class Case:
    """A network with integer parameters on integer data: the reference computes in int64,
    without rounding.
    """

    net: nm.MLP
    reference: naive.Network
    params: tuple
    x: np.ndarray

    @property
    def float_params(self) -> tuple[nm.Layer, ...]:
        return tuple(
            nm.Layer(w.astype(float), None if b is None else b.astype(float))
            for w, b in self.params
        )

    @property
    def bounds(self):
        return dimension_bounds(self.net, self.float_params, self.x.astype(float))

    @property
    def rank(self) -> int:
        return naive.exact_rank(naive.jacobian(self.reference, self.params, self.x))

    @property
    def preactivations(self) -> list[np.ndarray]:
        z = naive.preactivations(self.reference, self.params, self.x)
        return np.split(z, np.cumsum(self.net.widths[1:-2]), axis=1)

    @property
    def fixed(self) -> list[int]:
        return [
            int(((z > 0).all(axis=0) | (z <= 0).all(axis=0)).sum()) for z in self.preactivations
        ]


def draw(
    rng: np.random.Generator,
    widths: tuple[int, ...],
    layers: list[list[str]],
    *,
    bias: bool,
    spread: int,
) -> Case:
    """Parameters and the sample's centre of size 100, samples within `spread` of it; clustered
    when that is small.
    """
    pairs = list(zip(widths[:-1], widths[1:], strict=True))
    params = tuple(
        (rng.integers(-100, 101, (out, fan_in)), rng.integers(-5000, 5001, out) if bias else None)
        for fan_in, out in pairs
    )
    x = rng.integers(-100, 101, (1, widths[0])) + rng.integers(
        -spread, spread + 1, (rng.integers(1, 9), widths[0])
    )
    entries = tuple(
        nm.Mixed(*((nm.MLP((1, 1, 1), a).activation[0], 1) for a in names)) for names in layers
    )
    reference = naive.Network(tuple(tuple(SCALARS[a] for a in names) for names in layers))
    return Case(nm.MLP(widths, entries, bias=bias), reference, params, x)


def any_case(rng: np.random.Generator) -> Case:
    widths = tuple(int(w) for w in rng.integers(1, 5, rng.integers(2, 6)))
    layers = [
        [str(a) for a in rng.choice(list(SCALARS), n, p=[0.7, 0.15, 0.15])] for n in widths[1:-1]
    ]
    return draw(
        rng, widths, layers, bias=bool(rng.integers(4)), spread=int(rng.choice([5, 40, 200]))
    )


def monotonic_case(rng: np.random.Generator) -> Case:
    """Roughly monotonic ReLU networks: half of them increase by at most one, half decrease by at
    most one.
    """
    sign, widths = int(rng.choice([-1, 1])), [int(rng.integers(1, 4))]
    for _ in range(rng.integers(2, 5)):
        widths.append(int(np.clip(widths[-1] + sign * rng.choice([1, 1, 0, -1, -2]), 1, 5)))
    assert is_roughly_monotonic(tuple(widths))
    layers = [["relu"] * n for n in widths[1:-1]]
    return draw(rng, tuple(widths), layers, bias=True, spread=int(rng.choice([5, 40, 200])))


def test_region_bound_and_ours_hold_on_every_drawn_case(rng, draws, tally):
    n = draws(80)
    attained = {"tight": 0, "symmetry": 0, "regions": 0, "samples": 0, "printed region bound": 0}
    multiple = dead = 0
    for _ in range(n):
        case = any_case(rng)
        rank, bounds = case.rank, case.bounds
        assert (
            rank
            <= bounds.tight
            <= min(bounds.regions, bounds.symmetry, bounds.samples, bounds.generic)
        ), case
        counts = region_counts(case)
        o, n0 = case.net.widths[-1], case.net.widths[0]
        assert bounds.regions == o * sum(min(c, n0 + case.net.bias) for c in counts)
        assert bounds.regions_printed == (n0 + 1) * len(counts)
        assert bounds.regions_printed.applies == (o == 1)
        assert o > 1 or rank <= bounds.regions_printed
        multiple += o > 1
        dead += bool(
            case.net.hidden and any((z <= 0).all(axis=0).any() for z in case.preactivations)
        )
        for name in attained:
            bound = bounds.regions_printed if name.startswith("printed") else getattr(bounds, name)
            attained[name] += rank == int(bound)
    tally(multiple, of=n, what="with several outputs")
    tally(dead, of=n, what="with a neuron that is never positive")
    for name, count in attained.items():
        tally(count, of=n, what=f"attain: {name}")
    assert attained["tight"] > 0.95 * n


def region_counts(case: Case) -> np.ndarray:
    if not case.net.hidden:
        return np.array([len(case.x)])
    linear = [s is naive.IDENTITY for layer in case.reference.hidden for s in layer]
    active = naive.patterns(case.reference, case.params, case.x) | np.array(linear)
    return np.unique(active, axis=0, return_counts=True)[1]


def test_theorem_1_holds_on_roughly_monotonic_networks(rng, draws, tally):
    n, fixed, attained, below = draws(80), 0, 0, 0
    for _ in range(n):
        case = monotonic_case(rng)
        while any((z == 0).any() for z in case.preactivations):
            case = monotonic_case(rng)
        rank, bounds, k = case.rank, case.bounds, case.fixed
        formula = case.net.n_params - sum(
            w - f for w, f in zip(case.net.widths[1:-1], k, strict=True)
        )
        assert bounds.theorem1.applies
        assert int(bounds.theorem1) == formula - sum(f**2 for f in k)
        assert rank <= bounds.tight <= bounds.theorem1, case
        fixed += any(k)
        attained += rank == bounds.theorem1
        below += bounds.symmetry < bounds.theorem1
    tally(fixed, of=n, what="with fixed neurons")
    tally(below, of=n, what="where symmetries alone bound below Theorem 1")
    assert fixed >= n / 2
    assert attained < n / 10, (
        "Theorem 1 is slack: translations and dead parameters are missing from it"
    )


def test_theorem_1_formula_fails_beyond_its_hypothesis():
    """Ten neurons that are on throughout: f is a line, rank 2, and the formula says 31 − 100."""
    net = nm.MLP((1, 10, 1))
    params = (nm.Layer(np.ones((10, 1)), np.full(10, 2.0)), nm.Layer(np.ones((1, 10)), np.zeros(1)))
    x = np.linspace(0, 1, 7)[:, None]
    bounds = dimension_bounds(net, params, x)
    assert int(nm.functional_dimension(net, params, x, exact=True)) == 2 == bounds.tight
    assert bounds.theorem1 == -69
    assert not bounds.theorem1.applies
    assert "not roughly monotonic" in repr(bounds.theorem1)


def orbit_rank(
    widths: tuple[int, ...], linear: tuple[int, ...], *, translations: bool
) -> tuple[int, int]:
    vectors = orbit_directions(widths, linear, PRIME, translations=translations)
    return len(vectors), modular_rank(vectors, PRIME) if len(vectors) else 0


def count_params(widths) -> int:
    return sum(out * (fan_in + 1) for fan_in, out in zip(widths[:-1], widths[1:], strict=True))


def statuses(widths: tuple[int, ...]):
    """All (bent, linear, dead) counts of the hidden layers; behind a dead layer everything is
    constant.
    """
    options = [
        [(r, a, n - r - a) for r in range(n + 1) for a in range(n + 1 - r)] for n in widths[1:-1]
    ]
    for found in itertools.product(*options):
        blocked = [l for l, (r, a, _) in enumerate(found) if r + a == 0]
        if not any(found[l][0] for b in blocked for l in range(b + 1, len(found))):
            yield found, max(blocked, default=-1)


@pytest.mark.parametrize("depth", [2, 3])
def test_theorem_1_follows_from_scalings_linear_maps_and_translations(depth, tally):
    """Every status of every roughly monotonic architecture up to width 3: parameters that remain
    − orbit ≤ the formula.
    """
    cases = strict = 0
    for widths in itertools.product(range(1, 4), repeat=depth + 1):
        if not is_roughly_monotonic(widths):
            continue
        for found, last_dead in statuses(widths):
            live = [(r, a) if l >= last_dead else (0, 0) for l, (r, a, _) in enumerate(found)]
            reduced = (widths[0], *(r + a for r, a in live), widths[-1])
            ours = (
                count_params(reduced)
                - orbit_rank(reduced, tuple(a for _, a in live), translations=True)[1]
            )
            formula = count_params(widths) - sum(r + (a + q) ** 2 for r, a, q in found)
            assert ours <= formula, (widths, found)
            cases, strict = cases + 1, strict + (ours < formula)
    tally(strict, of=cases, what="statuses where ours is strictly smaller")


def test_proposition_a8_fails_for_the_second_kind_of_monotonicity():
    """(1, 3 | 2): g = I + k wᵀ with W²k = 0 and w ⟂ W¹, b¹ fixes θ. No architecture with fewer
    neurons does.
    """
    group, orbit = orbit_rank((1, 3, 2), (3,), translations=False)
    assert (group, orbit) == (9, 8)
    smaller = [
        w
        for depth in (2, 3, 4)
        for w in itertools.product(range(1, 5), repeat=depth + 1)
        if sum(w) < 6 or (sum(w) == 6 and w != (1, 3, 2))
    ]
    monotonic = [w for w in smaller if is_roughly_monotonic(w)]
    assert all(np.diff(orbit_rank(w, w[1:-1], translations=False)) == 0 for w in monotonic)


def test_the_stabiliser_of_that_counterexample_in_integers():
    W1, b1, W2 = np.array([[1], [0], [0]]), np.array([0, 1, 0]), np.array([[1, 0, 0], [0, 1, 0]])
    k, w = np.array([[0], [0], [1]]), np.array([[0, 0, 1]])
    g, inverse = np.eye(3, dtype=int) + k @ w, np.eye(3) - k @ w / 2
    assert (g @ inverse == np.eye(3)).all()
    assert (g @ W1 == W1).all()
    assert (g @ b1 == b1).all()
    assert (W2 @ inverse == W2).all()


@pytest.mark.parametrize("widths", [(1, 2), (1, 1, 2)])
def test_the_printed_region_bound_fails_for_two_outputs(widths):
    """On one region of one input, two outputs are two lines: four dimensions, and the print says
    1 + 1.
    """
    net = nm.MLP(widths)
    params = tuple(
        nm.Layer(np.ones((o, i)), np.ones(o)) for i, o in zip(widths[:-1], widths[1:], strict=True)
    )
    x = np.array([[0.0], [1.0], [2.0]])
    bounds = dimension_bounds(net, params, x)
    assert bounds.regions_printed == 2
    assert not bounds.regions_printed.applies
    assert (
        bounds.regions
        == bounds.tight
        == int(nm.functional_dimension(net, params, x, exact=True))
        == 4
    )


def test_almost_every_parameter_with_these_signs_attains_the_generic_rank(rng, draws, tally):
    """At a θ of small rank (an outgoing weight is 0) the bound is not attained; a small step
    away, signs unchanged, it is.
    """
    net, reference = nm.MLP((2, 3, 1)), naive.Network(((naive.RELU,) * 3,))
    special = 0
    for _ in range(n := draws(20)):
        params = [
            (rng.integers(-9, 10, (3, 2)), rng.integers(-9, 10, 3)),
            (np.array([[0, 1, 1]]), np.array([0])),
        ]
        x = rng.integers(-9, 10, (12, 2))
        # Odd, hence never zero: a step that leaves the outgoing weight at 0 leads nowhere.
        shift = tuple(
            tuple(2 * rng.integers(-500, 500, a.shape) + 1 for a in layer) for layer in params
        )
        near = [
            (10**6 * w + dw, 10**6 * b + db) for (w, b), (dw, db) in zip(params, shift, strict=True)
        ]
        signs = [np.sign(naive.preactivations(reference, p, x)) for p in (params, near)]
        if (signs[0] != signs[1]).any():
            continue
        here = dimension_bounds(net, as_layers(params), x.astype(float)).generic
        ranks = [naive.exact_rank(naive.jacobian(reference, p, x)) for p in (params, near)]
        assert ranks[0] <= ranks[1] == here
        special += ranks[0] < ranks[1]
    tally(special, of=n, what="special parameters below their generic rank")


def as_layers(params) -> tuple[nm.Layer, ...]:
    return tuple(nm.Layer(w.astype(float), b.astype(float)) for w, b in params)


def test_ours_is_the_exact_functional_dimension_of_the_papers_networks(key, draws, tally):
    net = nm.MLP(PAPER)
    x = nm.data.load("f1").x.astype(np.float32)
    runs = draws(32)
    params = net.init(key=key, runs=runs)
    smaller = 0
    for run in range(runs):
        one = jax.tree.map(lambda a, run=run: np.asarray(a[run]), params)
        bounds = dimension_bounds(net, one, x)
        assert int(nm.functional_dimension(net, one, x, exact=True)) == bounds.tight
        assert not bounds.theorem1.applies
        smaller += bounds.tight < bounds.regions
    tally(smaller, of=runs, what="below the region bound")


def test_traced_bounds_equal_those_on_the_host(key, x64):
    net = nm.MLP((2, 5, 4, 3), "relu")
    x = np.asarray(jax.random.normal(key, (40, 2)), np.float32)
    params = net.init(key=key, runs=6)
    for function, attribute in ((region_bound, "regions"), (theorem1_bound, "theorem1")):
        traced = jax.jit(jax.vmap(lambda p, f=function: f(net, p, x)))(params)
        each = [jax.tree.map(lambda a, r=r: np.asarray(a[r]), params) for r in range(6)]
        assert traced.tolist() == [function(net, p, x) for p in each]
        assert traced.tolist() == [
            int(getattr(dimension_bounds(net, p, x), attribute)) for p in each
        ]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_roughly_monotonic_is_what_the_assumption_says(n):
    for widths in itertools.product(range(1, 5), repeat=n + 1):
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        expected = all(b - 1 <= a for a, b in pairs) or all(a - 1 <= b for a, b in pairs)
        assert is_roughly_monotonic(widths) == expected


@pytest.mark.parametrize(
    "net, why",
    [
        (nm.MLP((2, 2, 1), bias=False), "no biases"),
        (nm.MLP((2, 2, 1), "abs"), "abs is neither ReLU"),
        (nm.MLP((2, 2, 1), output_activation="relu"), "output passes through relu"),
    ],
)
def test_theorem_1_says_why_it_does_not_apply(net, why, key):
    bound = dimension_bounds(net, net.init(key=key), np.eye(2)).theorem1
    assert not bound.applies
    assert why in bound.why


def test_a_bound_survives_pickling():
    bound = pickle.loads(pickle.dumps(Bound(-69, "the widths are wrong")))
    assert (bound, bound.why, bound.applies) == (-69, "the widths are wrong", False)


def test_smooth_networks_and_tracers_are_refused(key):
    net = nm.MLP((2, 3, 1), "tanh")
    with pytest.raises(ValueError, match="so it has no linear regions"):
        dimension_bounds(net, net.init(key=key), np.eye(2))
    net = nm.MLP((2, 3, 1))
    with pytest.raises(TypeError, match="`dimension_bounds` needs concrete values"):
        jax.jit(lambda p: dimension_bounds(net, p, np.eye(2)).regions)(net.init(key=key))
