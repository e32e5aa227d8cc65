"""Linear maps: the cost in closed form, its minimiser, its expansion, and the ReLU construction
that attains R1.
"""

import numpy as np
import pytest
from scipy.stats import ortho_group

import neuromanifold as nm
from neuromanifold.bottleneck import (
    balanced_factors,
    completely_positive,
    construction_norm,
    cost_expansion,
    jacobian_rank,
    linear_construction,
    log_plus,
    pseudo_determinant,
    representation_cost,
)
from neuromanifold.bottleneck.passage import squared_norm

EPS = np.finfo(np.float64).eps


def with_singular_values(rng, s, m=6, n=5):
    U, V = ortho_group.rvs(m, random_state=rng), ortho_group.rvs(n, random_state=rng)
    return U[:, : len(s)] * s @ V[:, : len(s)].T


@pytest.mark.parametrize("rank, condition", [(1, 1.0), (2, 10.0), (3, 1e3), (5, 1e6)])
def test_the_remainder_is_of_order_depth_to_the_minus_two_with_its_coefficient(
    rng, rank, condition
):
    s = np.geomspace(condition**0.7, condition**-0.3, rank) * 1.7
    expansion = cost_expansion(with_singular_values(rng, s))
    assert expansion.r0 == rank
    np.testing.assert_allclose(expansion.r1, 2 * np.log(s).sum(), rtol=1e-9)
    np.testing.assert_allclose(expansion.r2, 2 * (np.log(s) ** 2).sum(), rtol=1e-9)
    depths = np.array([2**j for j in range(12, 20)])
    scaled = np.array([expansion.remainder(int(L)) * L**2 for L in depths])
    np.testing.assert_allclose(expansion.r3, 4 / 3 * (np.log(s) ** 3).sum(), rtol=1e-8)
    errors = np.abs(scaled - expansion.r3)
    assert np.all(errors <= 2 * np.sum(np.log(s) ** 4) / depths), (
        "the next term is (2/3) Σ log⁴ s / L"
    )
    order = np.polyfit(
        np.log(depths), np.log(np.abs([expansion.remainder(int(L)) for L in depths])), 1
    )[0]
    assert abs(order + 2) < 0.02


def test_the_remainder_equals_the_difference(rng):
    expansion = cost_expansion(rng.normal(size=(4, 4)))
    for L in (1, 2, 5, 30):
        difference = expansion.cost(L) - L * expansion.r0 - expansion.r1 - expansion.r2 / L
        np.testing.assert_allclose(
            expansion.remainder(L), difference, atol=200 * EPS * max(1, expansion.cost(L)), rtol=0
        )


def test_the_second_coefficient_is_the_norm_of_the_pseudo_logarithm(rng):
    A = with_singular_values(rng, np.array([3.0, 0.5, 0.1]))
    np.testing.assert_allclose(
        cost_expansion(A).r2, np.sum(log_plus(A.T @ A, rtol=1e-10) ** 2) / 2, rtol=1e-8
    )
    np.testing.assert_allclose(pseudo_determinant(A), 0.15, rtol=1e-12)


def test_balanced_factors_attain_the_cost_and_no_factorisation_goes_below(rng, draws, tally):
    below = 0
    cases = draws(1000)
    for case in range(cases):
        L, d = 2 + case % 5, 3
        layers = [rng.normal(size=(d, d)) * np.exp(rng.normal()) for _ in range(L)]
        A = np.linalg.multi_dot(layers)
        norm = sum(np.sum(W**2) for W in layers)
        below += norm < representation_cost(A, L) * (1 - 1e-12)
    assert below == 0
    A = rng.normal(size=(4, 3)) @ rng.normal(size=(3, 5))
    for L in (1, 2, 7, 40):
        factors = balanced_factors(A, L, width=6)
        net = nm.MLP((5, *[6] * (L - 1), 4), "identity", bias=False)
        np.testing.assert_allclose(net(factors, np.eye(5)).T, A, atol=1e-12)
        np.testing.assert_allclose(
            squared_norm(net, factors), representation_cost(A, L), rtol=1e-12
        )
        for before, after in zip(factors[:-1], factors[1:], strict=True):
            np.testing.assert_allclose(
                before.weight @ before.weight.T, after.weight.T @ after.weight, atol=1e-12
            )
    tally(cases, of=cases, what="random factorisations at or above the cost")


def test_a_cheaper_claim_is_refuted():
    """Control: with exponent 2/(L+1) the closed form is undercut by the balanced factorisation."""
    s = np.array([0.5, 0.1])
    assert 4 * np.sum(s ** (2 / 5)) > representation_cost(np.diag(s), 4)


@pytest.mark.parametrize("depth", [3, 10, 100])
def test_the_construction_represents_the_map_exactly_on_its_domain(rng, depth):
    A = np.abs(rng.normal(size=(4, 3)))
    A[:, 2] = A[:, 0] + A[:, 1]
    points = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    net, params = linear_construction(A, points, depth)
    x = rng.uniform(size=(50, 3)) @ points
    np.testing.assert_allclose(net(params, x), x @ A.T, rtol=1e-10)
    np.testing.assert_allclose(squared_norm(net, params), construction_norm(A, depth), rtol=1e-10)
    outside = -x
    assert np.abs(net(params, outside) - outside @ A.T).max() > 0.1, (
        "the ReLU is there: outside it does something else"
    )


def test_the_norm_of_the_construction_tends_to_twice_the_log_determinant(rng):
    A = np.abs(rng.normal(size=(3, 3))) + np.eye(3)
    expansion = cost_expansion(A)
    excesses = np.array([construction_norm(A, L) - 3 * L for L in (10**3, 10**4, 10**5)])
    errors = np.abs(excesses - expansion.r1)
    assert errors[-1] < 1e-3
    np.testing.assert_allclose(errors[:-1] / errors[1:], 10, rtol=0.02)
    assert np.all(excesses > expansion.r1), "never below the cost of the linear map"


def test_complete_positivity_and_its_certificates(rng):
    quadrant = rng.uniform(size=(6, 3))
    rotated = quadrant @ ortho_group.rvs(3, random_state=rng)
    found = completely_positive(rotated)
    assert found
    assert found.verify(rotated)
    assert not found.verify(rotated @ ortho_group.rvs(3, random_state=rng))
    half_plane = np.array([[1.0, 0.1], [-1.0, 0.1]])
    refuted = completely_positive(half_plane)
    assert refuted.verdict is False
    assert refuted.verify(half_plane)
    with pytest.raises(
        ValueError, match="not known to be completely positive: points 0 and 1 make an obtuse angle"
    ):
        linear_construction(np.eye(2), half_plane, 5)


def test_a_doubly_nonnegative_matrix_that_is_not_completely_positive_is_refuted():
    """The classical 5×5 example: nonnegative entries and eigenvalues, but Horn's form is
    negative on it.
    """
    G = np.array(
        [[1, 1, 0, 0, 1], [1, 2, 1, 0, 0], [0, 1, 2, 1, 0], [0, 0, 1, 2, 1], [1, 0, 0, 1, 6]], float
    )
    assert np.linalg.eigvalsh(G)[0] > -1e-12
    points = np.linalg.cholesky(G + 1e-13 * np.eye(5))
    found = completely_positive(points, tries=2)
    assert found.verdict is False
    assert "Horn" in found.reason
    assert found.verify(points)


def test_identity_on_a_planar_completely_positive_domain_costs_exactly_rank_times_depth():
    """P 5, the positive case: all corrections vanish; a domain with an obtuse angle is refused
    (the negative one).
    """
    plane = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    P = np.linalg.pinv(plane) @ plane
    net, params = linear_construction(P, plane, 9)
    np.testing.assert_allclose(squared_norm(net, params), 2 * 9, rtol=1e-12)
    np.testing.assert_allclose(net(params, plane), plane, atol=1e-12)


def test_identity_on_a_signed_interval_costs_more_than_rank_times_depth(rng, draws, tally):
    """P 5, the negative case, at depth 2, and the lemma R(f∘g; L₁+L₂) ≤ R(f; L₁) + R(g; L₂) behind
    Thm 3(1): false here.

    One layer represents x on [−1, 1] for 1. Two layers cost more than 1 + 1: ‖θ‖² = 2 forces all
    norm into neurons that are open at x, without biases (the equality case of the Jacobian bound),
    for x = 1 and for x = −1. Networks that carry a share s of x by a neuron that is always open
    (bias |b| = |a|, an offset) and the rest by a pair ±a cost at least 2√2 s + s² + 4(1 − s), least
    4 − (2 − √2)² = 3.657.
    """
    least, total = np.inf, draws(2000)
    for _ in range(total):
        share = rng.choice([1.0, rng.uniform(), 0.0])
        a, pair = np.exp(0.3 * rng.normal(size=2))
        carried = 2 * a**2 + (share / a) ** 2 + share**2 if share else 0.0
        signed = 2 * pair**2 + 2 * ((1 - share) / pair) ** 2 if share < 1 else 0.0
        least = min(least, carried + signed)
    tally(total, of=total, what="two-layer networks for the identity")
    assert 4 - (2 - np.sqrt(2)) ** 2 - 1e-9 <= least < 4
    assert least > 2 * representation_cost(np.eye(1), 1) + 1


def test_second_corrections_add_under_matching_composition(rng, draws, tally):
    """P 4(1) for linear maps: √R2 is subadditive where R1 adds, and need not be where it does
    not.
    """
    kept = draws(200)
    for _ in range(kept):
        A, B = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))
        f, g, both = cost_expansion(A), cost_expansion(B), cost_expansion(A @ B)
        np.testing.assert_allclose(both.r1, f.r1 + g.r1, atol=1e-8)
        assert np.sqrt(both.r2) <= np.sqrt(f.r2) + np.sqrt(g.r2) + 1e-9
    tally(kept, of=kept, what="compositions with equal ranks and R1 additive")
    row, column = np.array([[1.0, 0.0]]), np.array([[0.1], [np.sqrt(0.99)]])
    f, g, both = cost_expansion(row), cost_expansion(column), cost_expansion(row @ column)
    assert both.r1 < f.r1 + g.r1 - 1
    assert np.sqrt(both.r2) > np.sqrt(f.r2) + np.sqrt(g.r2) + 1


def test_first_corrections_of_constants_are_not_subadditive():
    """Theorem 3(2) fails for f = g = ½ where R0 = 0 + 0: R1(c) = c² for |c| ≤ 1, so R1(f + g) = 1 >
    ½.

    A depth-L network with the constant value c at 0 has c ≤ |b_L| + |w_L| r with r the size of
    α_{L-1}(0), whose own cost is at least min(r², 1): brute force over the last layer finds nothing
    below c².
    """

    def cost(c, depth=4):
        if depth == 1:
            return c**2
        grid = np.linspace(0, 1.5, 301)[1:]
        inner = np.array([cost_of_size[depth - 1][i] for i in range(len(grid))])
        best = c**2
        for s in np.linspace(0, c, 101)[1:]:
            best = min(best, float(np.min((c - s) ** 2 + (s / grid) ** 2 + inner)))
        return best

    grid = np.linspace(0, 1.5, 301)[1:]
    cost_of_size = {1: grid**2}
    for depth in (2, 3):
        cost_of_size[depth] = np.array([cost(c, depth) for c in grid])
    half, whole = cost(0.5), cost(1.0)
    np.testing.assert_allclose([half, whole], [0.25, 1.0], rtol=1e-9)
    assert whole > half + half
    net = nm.MLP((1, 1, 1, 1, 1))
    zero = nm.Layer(np.zeros((1, 1)), np.zeros(1))
    params = (zero, zero, zero, nm.Layer(np.zeros((1, 1)), np.array([0.5])))
    assert net(params, np.ones((1, 1))).item() == 0.5
    assert squared_norm(net, params) == 0.25
    assert int(jacobian_rank(net, params, np.ones((1, 1)))) == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: representation_cost(np.ones(3), 2), r"`A` has shape \(3,\); pass a matrix"),
        (lambda: representation_cost(np.eye(2), 0), "`depth` is 0; pass a whole number of layers"),
        (lambda: representation_cost(np.array([[np.nan]]), 1), "`A` is nan"),
        (lambda: balanced_factors(np.eye(3), 2, width=2), "`width` is 2, below the rank 3"),
        (lambda: log_plus(np.array([[0.0, 1.0], [0.0, 0.0]])), "is not symmetric; pass AᵀA"),
        (lambda: log_plus(-np.eye(2)), "has the eigenvalue -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
