"""Brackets: their laws, closed forms, the flows that define them, and the fast route to deep
ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.graph.graph import trace
from neuromanifold.orbits import induced_field, left_normed, lie_bracket
from neuromanifold.orbits.family import Control, dense_family, iterated_brackets, walked_family
from neuromanifold.orbits.rings import Reals, Residues

EPS = np.finfo(np.float64).eps


def _polynomial_field(coefficients):
    """A quadratic field on a pytree of two parts."""
    A, B = coefficients

    def field(theta):
        flat, unravel = ravel_pytree(theta)
        return unravel(A @ flat + jnp.einsum("ijk,j,k->i", B, flat, flat))

    return field


def _tree_max(tree):
    return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree))


def _draw(rng, n, D=4):
    return jnp.asarray(rng.normal(size=(n, D, D))), jnp.asarray(rng.normal(size=(n, D, D, D)))


def test_antisymmetry_and_the_jacobi_identity(rng, draws, tally):
    n = draws(20)
    with jax.enable_x64(True):
        theta = {
            "a": jnp.asarray(rng.normal(size=(n, 2))),
            "b": jnp.asarray(rng.normal(size=(n, 1, 2))),
        }
        X, Y, Z = (_draw(rng, n) for _ in range(3))

        @jax.jit
        @jax.vmap
        def laws(theta, X, Y, Z):
            X, Y, Z = map(_polynomial_field, (X, Y, Z))
            swapped = jax.tree.map(jnp.add, lie_bracket(X, Y)(theta), lie_bracket(Y, X)(theta))
            cyclic = [
                left_normed(X, Y, Z)(theta),
                left_normed(Y, Z, X)(theta),
                left_normed(Z, X, Y)(theta),
            ]
            return swapped, jax.tree.map(lambda *terms: sum(terms), *cyclic), cyclic[0]

        swapped, jacobi, term = laws(theta, X, Y, Z)
        assert _tree_max(swapped) == 0.0
        assert _tree_max(jacobi) < 1e3 * EPS * _tree_max(term)
        alone = lie_bracket(*(_polynomial_field(jax.tree.map(lambda a: a[0], F)) for F in (X, Y)))
        assert _tree_max(alone(jax.tree.map(lambda a: a[0], theta))) > 0.1
    tally(n, of=n, what="triples of quadratic fields")


def test_linear_fields_bracket_as_matrices_commute(rng):
    with jax.enable_x64(True):
        A, B, C = jnp.asarray(rng.normal(size=(3, 5, 5)))
        theta = jnp.asarray(rng.normal(size=5))
        X, Y, Z = (lambda t: A @ t), (lambda t: B @ t), (lambda t: C @ t)
        np.testing.assert_allclose(lie_bracket(X, Y)(theta), (B @ A - A @ B) @ theta, rtol=1e-12)
        inner = C @ B - B @ C
        np.testing.assert_allclose(
            left_normed(X, Y, Z)(theta), (inner @ A - A @ inner) @ theta, rtol=1e-12
        )


def test_a_bracket_is_what_flows_fail_to_commute_by(rng):
    """e^{−tY}e^{−tX}e^{tY}e^{tX}θ = θ + t²[X, Y](θ) + O(t³); symmetric in t, the error of the
    mean of ±t is O(t²).
    """
    with jax.enable_x64(True):
        X, Y = (
            _polynomial_field(jax.tree.map(lambda a: 0.3 * a[0], _draw(rng, 1))) for _ in range(2)
        )
        theta = jnp.asarray(rng.normal(size=4))

        def flow(field, t, theta, steps=40):
            def step(y, _):
                h = t / steps
                k1 = field(y)
                k2 = field(y + h / 2 * k1)
                k3 = field(y + h / 2 * k2)
                return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(y + h * k3)), None

            return jax.lax.scan(step, theta, None, length=steps)[0]

        @jax.jit
        def commutator(t):
            moved = flow(Y, -t, flow(X, -t, flow(Y, t, flow(X, t, theta))))
            return (moved - theta) / t**2

        exact = lie_bracket(X, Y)(theta)
        errors = [
            float(jnp.abs((commutator(t) + commutator(-t)) / 2 - exact).max()) for t in (1e-2, 5e-3)
        ]
        assert errors[0] < 1e-2 * float(jnp.abs(exact).max())
        assert 3.0 < errors[0] / errors[1] < 5.0
        assert float(jnp.abs(commutator(1e-2) + exact).max()) > float(jnp.abs(exact).max())


NETWORKS = [
    (nm.MLP((2, 3, 1), "tanh", bias=False), (2,), (1,), 4),
    (nm.MLP((2, 3, 2, 2), ("sin", nm.Mixed(exp=1, tanh=1)), scaling="ntk"), (2,), (2,), 3),
    (nm.LinearConvNet(((2, 2), (2, 3)), ((1, 2), (1, 1))), (3, 6), (1, 1), 3),
]


def _fields(net, params, x):
    return (
        dense_family(net, x).fields
        if isinstance(net, nm.MLP)
        else walked_family(trace(net, params, x), x, Reals()).fields
    )


@pytest.mark.parametrize(
    "net, shape, outputs, depth", NETWORKS, ids=["dense", "deep", "convolution"]
)
def test_deep_brackets_are_the_nested_ones(net, shape, outputs, depth, rng):
    """The fast sweeps over nilpotents against nested forward mode, for a subset of the fields
    and for all of them.
    """
    lanes, subsets = 3, [2, (1 << depth - 1) - 1]
    params = net.init(key=jax.random.key(1), dtype="float64")
    with jax.enable_x64(True):
        theta, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
        controls = [
            Control(rng.normal(size=(lanes, 2, *shape)), rng.normal(size=(lanes, 2, *outputs)))
            for _ in range(depth)
        ]
        fields = _fields(net, params, controls[0].x[0])
        fast, _ = iterated_brackets(fields, np.broadcast_to(theta, (lanes, theta.size)), controls)

        @jax.jit
        @jax.vmap
        def nested(controls):
            fields = [
                induced_field(lambda t, x: net(unravel(t), x), *control) for control in controls
            ]
            return [
                left_normed(
                    *(fields[1 + i] for i in range(depth - 1) if subset >> i & 1), fields[0]
                )(theta)
                for subset in subsets
            ]

        slow = np.stack(nested([tuple(map(jnp.asarray, c)) for c in controls]))
    scale = np.abs(slow).max(axis=-1, keepdims=True)
    assert (np.abs(fast[subsets] - slow) <= 1e3 * EPS * scale).all()
    assert scale.min() > 1e-6


def test_brackets_modulo_a_prime_are_the_residues_of_rational_ones(rng):
    """Whole numbers throughout: float64 brackets are exact integers, and their residues must be
    the modular brackets.
    """
    ring = Residues(2**61 - 1)
    net = nm.MLP((2, 3, 1), nm.power(3), bias=False)
    theta = rng.integers(-2, 3, (1, net.n_params)).astype(float)
    controls = [
        (rng.integers(-2, 3, (1, 1, 2)).astype(float), rng.integers(1, 3, (1, 1, 1)).astype(float))
        for _ in range(3)
    ]
    values = []
    for r in (Reals(), ring):
        fields = walked_family(
            trace(net, net.init(key=jax.random.key(0)), controls[0][0][0]), controls[0][0][0], r
        ).fields
        values.append(
            iterated_brackets(
                fields, r.embed(theta), [Control(*(r.embed(a) for a in c)) for c in controls]
            )[0]
        )
    assert 0 < np.abs(values[0]).max() < 2**53
    np.testing.assert_array_equal(ring.embed(values[0]), values[1])


def test_induced_fields_are_the_rows_of_the_jacobian(rng):
    net = nm.MLP((2, 3, 2), "tanh")
    params = net.init(key=jax.random.key(0), dtype="float64")
    x = rng.normal(size=(1, 2))
    with jax.enable_x64(True):
        rows = [
            ravel_pytree(
                induced_field(net, jnp.asarray(x), jnp.eye(2)[o : o + 1])(
                    jax.tree.map(jnp.asarray, params)
                )
            )[0]
            for o in range(2)
        ]
    np.testing.assert_allclose(np.stack(rows), nm.jacobian(net, params, x), rtol=1e-12)
    family = dense_family(net, x)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(params)])
    np.testing.assert_allclose(family.jacobian(flat), nm.jacobian(net, params, x), rtol=1e-12)
