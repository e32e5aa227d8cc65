"""Closures in exact arithmetic: the count for linear networks, certificates, and float64 beside
them.
"""

from dataclasses import replace
from itertools import product

import equinox as eqx
import jax
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold.orbits import lie_closure
from neuromanifold.orbits.bounds import left_kernel


def laws(n, m, r):
    """Independent conserved functions of UVᵀ, U (n×r), V (m×r), (U, V) of rank r.
    [THEORY, conservation]
    """
    return r * (r + 1) // 2 if n + m >= r else (n + m) * r - (n + m) * (n + m - 1) // 2


def factorisation(U, V):
    """x ↦ UVᵀx as a network with its parameters."""
    net = nm.MLP((len(V), U.shape[1], len(U)), "identity", bias=False)
    return net, (nm.Layer(np.ascontiguousarray(V.T, float)), nm.Layer(np.asarray(U, float)))


def test_every_two_layer_linear_net_up_to_four_has_the_known_count(key, rng, tally):
    """D − dim Lie_θ for all 64 shapes n, m, r ≤ 4 at full rank, proved: lower and upper bound
    meet modulo a prime.
    """
    proved = 0
    for n, m, r in product(range(1, 5), repeat=3):
        net, params = factorisation(rng.normal(size=(n, r)), rng.normal(size=(m, r)))
        with unchecked():
            closure = lie_closure(net, params, key=key)
        assert net.n_params - int(closure.dimension) == laws(n, m, r), (n, m, r)
        assert closure.dimension.exact and closure.agree and closure.misfit < 1e-6
        proved += closure.certified and closure.dimension.certificate.proved
    tally(proved, of=64, what="shapes (n, m, r) with the known number of conservation laws, proved")
    assert proved == 64


def test_points_of_lower_rank_have_the_count_of_their_rank(key, rng, draws, tally):
    """Where (U, V) has rank q < r the orbit is that of q neurons: dim Lie_θ = (n+m)q − laws(n,
    m, q).
    """
    lower, count = 0, draws(25)
    for _ in range(count):
        n, m, r = rng.integers(1, 4, 3)
        q = rng.integers(0, r + 1)
        common = rng.integers(-3, 4, (q, r))
        U, V = (rng.integers(-3, 4, (size, q)) @ common for size in (n, m))
        q = int(np.linalg.matrix_rank(np.concatenate([U, V])))
        with unchecked():
            closure = lie_closure(*factorisation(U, V), key=key)
        assert int(closure.dimension) == closure.upper_bound == (n + m) * q - laws(n, m, q), (U, V)
        lower += q < r
    tally(lower, of=count, what="factorisations of lower rank")


def test_certificates_verify_and_refuse(key, rng):
    net, params = factorisation(rng.normal(size=(2, 2)), rng.normal(size=(3, 2)))
    closure = lie_closure(net, params, key=key)
    certificate = closure.dimension.certificate
    assert certificate.verify(net, params, closure.inputs)
    elsewhere = (nm.Layer(params[0].weight + 1), params[1])
    assert not certificate.verify(net, elsewhere, closure.inputs)
    assert not certificate.verify(net, params, closure.inputs[1:])
    false = eqx.tree_at(lambda c: c, certificate, replace(certificate, rank=certificate.rank + 1))
    assert not false.verify(net, params, closure.inputs)
    assert (
        str(closure.dimension) == "7 (exact, depth 2, proved: 3 given up to conserved quantities)"
    )


POLYNOMIAL = [
    nm.MLP((2, 3, 1), nm.power(2), bias=False),
    nm.MLP((1, 2, 1), nm.power(3)),
    nm.MLP((4, 2, 1), nm.Mixed((nm.power(2), 1), identity=1), scaling="ntk"),
    nm.MLP((2, 2, 2, 1), ("identity", nm.power(2)), bias=False),
    nm.LinearConvNet((3, 2, 2), (2, 1, 1)),
    nm.LinearConvNet(((2, 2), (2, 1)), ((1, 1), (1, 1))),
]


@pytest.mark.parametrize("net", POLYNOMIAL, ids=str)
def test_exact_and_float_ranks_agree_at_every_depth(net, key, rng):
    params = jax.tree.map(
        lambda a: rng.integers(-4, 5, a.shape) / 4, net.init(key=key, dtype="float64")
    )
    exact = lie_closure(net, params, key=key, depth=3)
    floats = lie_closure(net, params, key=key, depth=3, exact=False, inputs=exact.inputs)
    assert [int(rank) for rank in exact.by_depth] == [int(rank) for rank in floats.by_depth]
    assert exact.dimension.exact and not floats.dimension.exact
    assert exact.upper_bound == floats.upper_bound and exact.agree and floats.agree


def test_zero_is_a_fixed_point_of_homogeneous_networks(key):
    net = nm.MLP((2, 2, 2), nm.power(2), bias=False)
    closure = lie_closure(
        net, jax.tree.map(np.zeros_like, net.init(key=key, dtype="float64")), key=key
    )
    assert int(closure.dimension) == closure.upper_bound == 0 and closure.basis.shape == (0, 8)


def test_left_kernels_are_exact(rng):
    assert left_kernel(rng.normal(size=(3, 4))) == []
    c = np.array([3.0, -1.0, 2.0])
    rows = rng.integers(-9, 10, (2, 4)) / 8
    matrix = np.stack([rows[0], 3 * rows[0] + 2 * rows[1], rows[1]])
    assert left_kernel(matrix) == [[3, -1, 2]]
    assert not (c @ matrix).any()
    assert left_kernel(matrix + 2.0**-40 * np.eye(3, 4)) == []
