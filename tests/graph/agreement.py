"""One network in every arithmetic, against JAX in float64 and against fractions."""

from fractions import Fraction
from typing import Any

import flint
import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.arithmetic import Floats
from neuromanifold.graph.bounded import Bounded
from neuromanifold.graph.heights import Heights
from neuromanifold.graph.numbers import Fractions, Rationals, Support
from neuromanifold.numerics import modular
from neuromanifold.regions.problem import Problem


def jacobian(f: Any, params: Any, x: np.ndarray) -> np.ndarray:
    """By JAX, sample by sample."""
    with jax.enable_x64(True):
        blocks = jax.jacrev(lambda p: f(p, jnp.asarray(x)).reshape(len(x), -1))(
            jax.tree.map(jnp.asarray, params)
        )
        return np.concatenate(
            [np.asarray(b).reshape(*b.shape[:2], -1) for b in jax.tree.leaves(blocks)], axis=2
        )


def check_arithmetics(f: Any, params: Any, x: np.ndarray) -> Problem:
    """Floats and bounds enclose JAX's Jacobian, residues are those of fractions, heights and
    supports bound them.

    Where a bend is met exactly, JAX takes a mean of both sides: there values alone are compared
    with it.
    """
    problem = Problem.of(f, params, x)
    fractions = problem.jacobian(Fractions())
    tied = any(t.any() for t in problem.decisions.ties)
    expected = fractions.astype(float) if tied else jacobian(f, params, x).reshape(problem.shape)
    scale = max(1e-300, np.abs(expected).max())
    with jax.enable_x64(True):
        outputs = np.asarray(f(jax.tree.map(jnp.asarray, params), jnp.asarray(x))).reshape(
            len(x), -1
        )
    values = problem.values(Fractions()).astype(float)
    np.testing.assert_allclose(
        values, outputs, rtol=1e-12, atol=1e-12 * max(1.0, np.abs(outputs).max())
    )
    np.testing.assert_allclose(problem.jacobian(Floats()), expected, atol=1e-13 * scale)
    bounded = problem.jacobian(Bounded())
    assert (np.abs(bounded.middle - expected) <= bounded.radius + 1e-12 * scale).all()
    assert float(max(abs(fractions.astype(float) - expected).ravel())) <= 1e-13 * scale
    assert [_fraction(v) for v in problem.jacobian(Rationals()).flat] == [
        _fraction(v) for v in fractions.flat
    ]
    inside = np.array(
        [
            abs(float(v) - m) <= r
            for v, m, r in zip(
                fractions.flat, bounded.middle.flat, bounded.radius.flat, strict=True
            )
        ]
    )
    assert inside.all()
    p = modular.random_prime()
    residues = [
        modular.from_fraction(int(v.numerator), int(v.denominator), p)
        for v in map(_fraction, fractions.flat)
    ]
    np.testing.assert_array_equal(problem.residues(p).ravel(), residues)
    height = problem.jacobian(Heights())
    assert all(abs(float(v)) <= 2.0**height.magnitude for v in fractions.flat)
    assert all(v == 0 or abs(float(v)) >= 2.0**height.separation for v in fractions.flat)
    support = problem.jacobian(Support()).flags
    assert not expected[~support].any()
    return problem


def _fraction(value: Any) -> Fraction:
    """A number of either arithmetic; zeros that index maps put in are plain integers."""
    return (
        Fraction(int(value.p), int(value.q)) if isinstance(value, flint.fmpq) else Fraction(value)
    )
