"""How gradient, Hessian and kernel transform: Γ = (Dg)^{−T} for every group, both Hessian terms
for a nonlinear one.
"""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.symmetry.groups.monomial import monomial
from symmetry.support import derivatives, flat, problem

CAST = [
    (S.PermutationGroup, nm.MLP((2, 4, 1), "tanh")),
    (S.SignGroup, nm.MLP((2, 4, 1), "tanh")),
    (S.ScalingGroup, nm.MLP((2, 3, 1), nm.power(3))),
    (S.ScalingGroup, nm.MLP((2, 4, 3, 1))),
    (S.GeneralLinearGroup, nm.MLP((2, 3, 2), "identity")),
    (S.AffineGroup, nm.MLP((2, 3, 2), "identity")),
    (S.OrthogonalGroup, nm.MLP((2, 3, 2), "identity")),
    (S.HadamardGroup, nm.MLP((2, 2, 1), "tanh")),
]


@pytest.mark.parametrize(
    "make, net",
    CAST,
    ids=lambda v: v.__name__ if callable(v) and not isinstance(v, nm.MLP) else str(v),
)
def test_transformation_laws(make, net, key, rng):
    group = make(net)
    params, x, y = problem(net, rng, 6)
    params, g = group.extend(params), group.sample(key=key)
    law = S.transformation(g, params, second=make is S.AffineGroup)
    gradient, hessian, J = derivatives(group.model, params, x, y)
    moved_gradient, moved_hessian, moved_J = derivatives(group.model, g(params), x, y)
    size = np.abs(moved_hessian).max()
    np.testing.assert_allclose(
        law.gradient(gradient), moved_gradient, rtol=0, atol=1e-11 * np.abs(moved_gradient).max()
    )
    np.testing.assert_allclose(
        law.hessian(hessian, gradient), moved_hessian, rtol=0, atol=1e-11 * size
    )
    kernel = moved_J @ moved_J.T
    np.testing.assert_allclose(law.kernel(J), kernel, rtol=0, atol=1e-11 * np.abs(kernel).max())
    assert law.norm == pytest.approx(S.gamma_norm(g, params), rel=1e-9)


def test_the_printed_hessian_law_needs_a_symmetric_gamma(key, rng):
    """[teleport, Eq. 22] prints ΓᵀHΓ. For a 3-cycle of neurons Γ is no symmetric matrix and only
    ΓHΓᵀ (Eq. 67) holds.
    """
    net = nm.MLP((2, 3, 1), "tanh")
    params, x, y = problem(net, rng, 6)
    _, hessian, _ = derivatives(net, params, x, y)
    for order, symmetric in (([1, 2, 0], False), ([1, 0, 2], True)):
        g = monomial(net, order=[np.array(order)])
        gamma = S.transformation(g, params).gamma
        _, moved, _ = derivatives(net, g(params), x, y)
        assert (gamma == gamma.T).all() == symmetric
        np.testing.assert_allclose(
            gamma @ hessian @ gamma.T, moved, rtol=0, atol=1e-12 * np.abs(moved).max()
        )
        assert (
            np.abs(gamma.T @ hessian @ gamma - moved).max() < 1e-12 * np.abs(moved).max()
        ) == symmetric


def test_a_nonlinear_symmetry_of_the_batch_needs_both_hessian_terms(key, rng):
    """[teleport, Eq. 67, 72] on a data-dependent symmetry; the two terms are of the same size."""
    net = nm.MLP((2, 3, 2), "tanh")
    params, x, y = problem(net, rng, 3)
    group = S.BatchGroup(net, x)
    g, h = (group.sample(key=k) for k in jax.random.split(key))
    moved = g(params)
    assert np.abs(net(moved, x) - net(params, x)).max() < 1e-12
    fresh = rng.normal(size=(5, 2))
    assert np.abs(net(moved, fresh) - net(params, fresh)).max() > 1e-3
    assert np.abs(flat(g.inverse(moved)) - flat(params)).max() < 1e-11
    assert np.abs(flat((g @ h)(params)) - flat(g(h(params)))).max() < 1e-11
    assert np.abs(flat(group.identity(params)) - flat(params)).max() < 1e-12
    law = S.transformation(g, params, second=True)
    gradient, hessian, _ = derivatives(net, params, x, y)
    moved_gradient, moved_hessian, _ = derivatives(net, moved, x, y)
    size = np.abs(moved_hessian).max()
    np.testing.assert_allclose(
        law.gradient(gradient), moved_gradient, rtol=0, atol=1e-10 * np.abs(moved_gradient).max()
    )
    np.testing.assert_allclose(
        law.hessian(hessian, gradient), moved_hessian, rtol=0, atol=1e-9 * size
    )
    first_term = law.gamma @ hessian @ law.gamma.T
    assert np.abs(first_term - moved_hessian).max() > 1e-2 * size
    # Eq. 72: ∂_μ Γ_{βν} = −Γ_{βρ} T_{μρσ} Γ_{σν}, by finite differences along one direction.
    direction, step = rng.normal(size=len(gradient)), 1e-5
    ahead, behind = (
        S.transformation(g, _shift(params, s * step * direction)).gamma for s in (1, -1)
    )
    predicted = -np.einsum("br,mrs,sn,m->bn", law.gamma, law.second, law.gamma, direction)
    np.testing.assert_allclose(
        (ahead - behind) / (2 * step), predicted, rtol=0, atol=1e-5 * np.abs(predicted).max()
    )


def _shift(params, flat):
    with arithmetic():
        start, unravel = ravel_pytree(promote(params, np.float64))
        return jax.tree.map(np.asarray, unravel(start + flat))


def test_generalised_symmetries_have_the_derivatives_of_the_true_one(key, rng):
    """[teleport, App. C.2]: a scaling θ ↦ s ⊙ θ, and c = 1/s in F(c ⊙ ·): same gradient, Hessian
    and kernel afterwards.
    """
    net = nm.MLP((2, 3, 1), nm.power(2))
    params, x, y = problem(net, rng, 6)
    moved = S.ScalingGroup(net).sample(key=key)(params)
    factors = jax.tree.map(lambda old, new: old / new, params, moved)
    hadamard = S.HadamardGroup(net)
    extended = S.Reparametrization(factors)(hadamard.extend(params))
    model = hadamard.model.frozen(extended.factors)
    for ours, theirs in zip(
        derivatives(model, extended.params, x, y), derivatives(net, moved, x, y), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


def test_any_matrix_is_a_generalised_symmetry(key, rng):
    net = nm.MLP((2, 2, 1), "tanh")
    params, x, y = problem(net, rng, 6)
    group = S.MatrixGroup(net)
    g = group.sample(key=key)
    moved = g(group.extend(params))
    model = group.model.frozen(moved.factors)
    gradient, hessian, _ = derivatives(net, params, x, y)
    ours, theirs, _ = derivatives(model, moved.params, x, y)
    np.testing.assert_allclose(
        ours, g.factors.T @ gradient, rtol=0, atol=1e-12 * np.abs(ours).max()
    )
    np.testing.assert_allclose(
        theirs, g.factors.T @ hessian @ g.factors, rtol=0, atol=1e-12 * np.abs(theirs).max()
    )
