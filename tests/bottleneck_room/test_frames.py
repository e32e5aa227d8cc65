"""Theorem 6 at arbitrary parameters, the finite-depth bounds, and the Jacobian rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from bottleneck_room.networks import near_isometric, random_params
from neuromanifold.bottleneck import (
    bottleneck_frames,
    bottleneck_structure,
    jacobian_rank,
    norm_bound,
    two_point_bound,
)
from neuromanifold.bottleneck.bounds import schatten_cost
from neuromanifold.bottleneck.frames import appendix_factors
from neuromanifold.bottleneck.passage import passage

RELU = nm.MLP((3, 6, 5, 6, 4))
NARROW = nm.MLP((3, 6, 2, 6, 4))
DEEP = nm.MLP((4, *[6] * 11, 4))
NEGATIVE = nm.MLP((3, 5, 5, 2), nm.leaky_relu(-0.75))
LEAKY = nm.MLP((3, 5, 5, 2), nm.leaky_relu(0.25))
TANH = nm.MLP((3, 5, 5, 2), "tanh")
LINEAR = nm.MLP((3, 4, 4, 3), "identity", bias=False)
NTK = nm.MLP((3, 6, 5, 2), scaling="ntk")


@pytest.mark.parametrize("net", [RELU, NARROW, LEAKY, NEGATIVE, TANH, LINEAR, NTK, DEEP], ids=repr)
def test_theorem_6_holds_at_random_and_cheap_parameters(net, rng, draws, tally):
    full = smaller = 0
    total = draws(40)
    for case in range(total):
        noise = 10.0 ** rng.uniform(-6, 0)
        params = (
            random_params(rng, net.widths, net.bias)
            if case % 2
            else near_isometric(
                rng, net.widths, int(rng.integers(1, min(net.widths) + 1)), noise, net.bias
            )
        )
        x = np.abs(rng.normal(size=(1, net.widths[0])))
        found = bottleneck_frames(net, params, x)
        assert found.holds, (found.spent, found.budget)
        assert np.all(found.residuals + found.bias_norms <= found.shares + found.rounding), (
            "layer by layer too"
        )
        assert np.all(found.closest <= found.residuals + found.rounding)
        inner = found.left[-1].T @ passage(net, params, x).jacobian()[0] @ found.right[0]
        condition = np.linalg.cond(inner) if found.rank else 1.0
        np.testing.assert_allclose(
            found.shares.sum(), found.budget, atol=1e-9 + 1e-14 * condition * net.depth
        )
        full += found.rank > 0
        for k in range(found.rank):
            assert bottleneck_frames(net, params, x, rank=k).holds
            smaller += 1
    tally(full, of=total, what="points with a Jacobian of positive rank")
    tally(smaller, of=total * min(net.widths), what="smaller ranks")


def test_theorem_6_holds_where_it_is_nearly_violated(rng, draws, tally):
    """Adversarial: descend on budget − spent from random parameters; it approaches zero and
    never crosses it.
    """
    widths, steps = (2, 3, 3, 2), 300
    net = nm.MLP(widths, bias=False)

    def slack(params, x):
        W = [p.weight for p in params]
        a, J, V, residual = x, jnp.eye(2), None, 0.0
        D = []
        for i, w in enumerate(W):
            z = w @ a
            D.append(jnp.where(i < 2, z > 0, True).astype(float) * jnp.ones_like(z))
            a = D[-1] * z
            J = D[-1][:, None] * (w @ J)
        V = jnp.linalg.svd(J)[2].T
        for w, d in zip(W, D, strict=True):
            image = w @ V
            basis = jnp.linalg.qr(d[:, None] * image)[0]
            U, _, Vt = jnp.linalg.svd(basis.T @ image, full_matrices=False)
            new = basis @ U @ Vt
            residual += jnp.sum((w - new @ V.T) ** 2)
            V = new
        norm = sum(jnp.sum(w**2) for w in W)
        return norm - 2 * 3 - 2 * jnp.log(jnp.abs(jnp.linalg.det(J))) - residual

    def descend(params, x):
        def step(p, _):
            moved = jax.tree.map(
                lambda a, g: a - 0.02 * g / (1e-9 + jnp.sqrt(jnp.sum(g**2))),
                p,
                jax.grad(slack)(p, x),
            )
            finite = jnp.all(jnp.array([jnp.isfinite(a).all() for a in jax.tree.leaves(moved)]))
            return jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, p), None

        return jax.lax.scan(step, params, None, length=steps)[0]

    runs = draws(16)
    with jax.enable_x64(True):
        x = jnp.asarray([1.0, 0.7])
        starts = [
            tuple(
                nm.Layer(np.abs(rng.normal(size=(b, a))))
                for a, b in zip(widths[:-1], widths[1:], strict=True)
            )
            for _ in range(runs)
        ]
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *starts)
        moved = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda p: descend(p, x)))(stacked))
    closer = 0
    for i, start in enumerate(starts):
        end = jax.tree.map(lambda a, i=i: a[i], moved)
        before, after = (bottleneck_frames(net, p, np.array([[1.0, 0.7]])) for p in (start, end))
        if after.rank == 2 and np.isfinite(after.spent):
            assert after.holds
            closer += after.budget - after.spent < 0.5 * (before.budget - before.spent)
    tally(closer, of=runs, what="runs that halved the slack without crossing zero")


def test_theorem_6_is_sharp_and_fails_with_a_constant_one_smaller():
    net = nm.MLP((2, 2, 2, 2), bias=False)
    found = bottleneck_frames(net, (nm.Layer(np.eye(2)),) * 3, np.ones((1, 2)))
    assert found.spent == 0.0
    np.testing.assert_allclose(found.budget, 0.0, atol=1e-14)
    assert found.spent > found.budget - 1


def test_the_main_text_shares_its_frames_which_is_false_for_negative_slopes():
    """[bottleneck, Thm 6] with one V_l per layer, σ(z) = −0.9z for z ≤ 0 (the setup allows slopes
    in (−1, 1)).

    W_1 = ũ, W_2 = (D_1ũ)ᵀ/|D_1ũ|: the budget is −2 log|D_1ũ|, and no V_1 brings both layers closer
    than 4 − 2|ũ + v|.
    """
    net = nm.MLP((1, 2, 1), nm.leaky_relu(-0.9), bias=False)
    u = np.array([0.8, -0.6])
    bent = np.array([0.8, 0.54])
    v = bent / np.linalg.norm(bent)
    found = bottleneck_frames(net, (nm.Layer(u[:, None]), nm.Layer(v[None])), np.ones((1, 1)))
    np.testing.assert_allclose(found.budget, -2 * np.log(np.linalg.norm(bent)), rtol=1e-12)
    assert not found.shared
    assert found.holds, "with U_l and V_l apart, as in the appendix"
    angles = np.linspace(0, 2 * np.pi, 100_001)
    shared = np.stack([np.cos(angles), np.sin(angles)])
    best = min(
        np.min(2 + 2 - 2 * s * (u @ shared) - 2 * t * (v @ shared))
        for s in (1, -1)
        for t in (1, -1)
    )
    np.testing.assert_allclose(
        best, 4 - 2 * max(np.linalg.norm(u + v), np.linalg.norm(u - v)), atol=1e-8
    )
    assert best > found.budget + 0.5


def test_the_appendix_proves_it_with_factors_that_violate_it(rng, draws, tally):
    """[bottleneck, Thm 15]: the SVD of the doubly projected W_l. Smallest counterexample (1, 2,
    1), then random ones.
    """
    net = nm.MLP((1, 2, 1), bias=False)
    params = (nm.Layer(np.array([[0.8], [0.6]])), nm.Layer(np.array([[1.0, 0.0]])))
    x = np.ones((1, 1))
    budget = bottleneck_frames(net, params, x).budget
    np.testing.assert_allclose(budget, -2 * np.log(0.8), rtol=1e-12)
    spent = sum(
        np.sum((p.weight - U @ V.T) ** 2)
        for p, (U, V) in zip(params, appendix_factors(net, params, x), strict=True)
    )
    np.testing.assert_allclose(spent, 0.8, rtol=1e-12)
    assert spent > budget + 0.3
    violated, total = 0, draws(60)
    for _ in range(total):
        params = near_isometric(rng, (3, 4, 4, 3), 3, 0.05, bias=False)
        x = np.abs(rng.normal(size=(1, 3)))
        net = nm.MLP((3, 4, 4, 3), bias=False)
        factors = appendix_factors(net, params, x)
        spent = sum(
            np.sum((p.weight - U @ V.T) ** 2) for p, (U, V) in zip(params, factors, strict=True)
        )
        found = bottleneck_frames(net, params, x)
        assert found.holds
        violated += bool(spent > found.budget + found.rounding)
    tally(
        violated, of=total, what="random networks on which the appendix's factors exceed the budget"
    )


def test_no_network_is_cheaper_than_its_jacobians_allow(rng, draws, tally):
    total, tight = draws(60), 0
    for case in range(total):
        params = near_isometric(rng, RELU.widths, 1 + case % 3, 10.0 ** rng.uniform(-4, 0.3))
        x = rng.normal(size=(8, 3))
        found = norm_bound(RELU, params, x)
        assert found.excess >= -1e-12 * found.squared_norm
        both = two_point_bound(RELU, params, x)
        assert both.excess >= -1e-12 * both.squared_norm
        assert both.bound >= found.bound - 1e-12 * found.bound
        tight += both.bound > found.bound * (1 + 1e-6)
    tally(tight, of=total, what="networks whose two-point bound is the larger one")


@pytest.mark.parametrize("bound", [norm_bound, two_point_bound])
def test_rounding_does_not_count_as_rank_in_a_deep_network(bound, rng):
    """A chain of isometries of rank one costs exactly L; 10⁻¹⁷ to the power 2/30 is 0.07."""
    depth, width = 30, 4
    units = [u / np.linalg.norm(u) for u in rng.normal(size=(depth + 1, width))]
    params = tuple(
        nm.Layer(np.outer(after, before))
        for before, after in zip(units[:-1], units[1:], strict=True)
    )
    net = nm.MLP((width,) * (depth + 1), "identity", bias=False)
    found = bound(net, params, rng.normal(size=(3, width)))
    np.testing.assert_allclose(found.bound, depth, rtol=1e-12)
    s = np.linalg.svd(net(params, np.eye(width)), compute_uv=False)
    assert depth * np.sum(s ** (2 / depth)) > depth + 0.05, (
        "what counting every singular value would claim"
    )


def test_the_two_point_bound_is_attained_and_fails_with_a_larger_constant():
    net = nm.MLP((1, 2, 1), bias=False)
    params = (nm.Layer(np.array([[1.0], [-1.0]])), nm.Layer(np.array([[1.0, 1.0]])))
    found = two_point_bound(net, params, np.array([[1.0], [-1.0]]))
    assert found.excess == 0.0
    assert found.bound + 2.0 > found.squared_norm, "the term C⁻²‖ΔJ‖_* = 2 cannot be doubled"


def test_the_jacobian_bound_of_a_linear_network_is_its_representation_cost(rng):
    A = rng.normal(size=(3, 3))
    factors = nm_balanced(A, 5)
    net = nm.MLP((3, 3, 3, 3, 3, 3), "identity", bias=False)
    assert abs(norm_bound(net, factors, np.ones((1, 3))).excess) < 1e-11
    np.testing.assert_allclose(
        schatten_cost(A, 5), norm_bound(net, factors, np.ones((1, 3))).bound, rtol=1e-11
    )


def nm_balanced(A, depth):
    from neuromanifold.bottleneck import balanced_factors

    return balanced_factors(A, depth)


@pytest.mark.parametrize(
    "net", [RELU, LEAKY, TANH, NTK, nm.MLP((3, 4, 2), nm.Mixed(relu=2, identity=2))], ids=repr
)
def test_the_passage_agrees_with_automatic_differentiation(net, rng):
    params, x = random_params(rng, net.widths), rng.normal(size=(5, 3))
    through = passage(net, params, x)
    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, params)
        J = jax.vmap(jax.jacfwd(lambda p: net(arrays, p[None])[0]))(jnp.asarray(x))
        z = net.preactivations(arrays, jnp.asarray(x))
    np.testing.assert_allclose(through.jacobian(), J, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        through.backward_jacobians()[0] @ through.weights[0], J, rtol=1e-12, atol=1e-14
    )
    for found, expected in zip(through.preactivations, z, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_steep_activations_are_refused():
    net = nm.MLP((1, 1, 1), "gelu")
    params = (nm.Layer(np.array([[1.0]]), np.ones(1)),) * 2
    with pytest.raises(ValueError, match=r"the bounds need \|σ'\| ≤ 1"):
        norm_bound(net, params, np.ones((1, 1)))


def test_jacobian_rank_exactly_and_numerically(rng):
    params = random_params(rng, NARROW.widths)
    x = rng.normal(size=(12, 3))
    exact, numerical = (
        jacobian_rank(NARROW, params, x, exact=True),
        jacobian_rank(NARROW, params, x),
    )
    J = passage(NARROW, params, x).jacobian()
    assert int(exact) == int(numerical) == max(np.linalg.matrix_rank(j) for j in J)
    assert exact.exact
    assert exact.certificate is not None
    assert exact.certificate.reason in ("full rank", "open neurons", "probability")
    assert exact.certificate.verify(NARROW, params, x)
    assert not exact.certificate.verify(
        NARROW, (nm.Layer(0 * params[0].weight, params[0].bias), *params[1:]), x
    )


def test_an_exact_rank_where_floats_are_undecided():
    """Singular values 1 and 2⁻⁶⁰: numerically rank 1, exactly rank 2; and an exact cancellation
    that floats miss.
    """
    net = nm.MLP((2, 2), bias=False)
    params = (nm.Layer(np.diag([1.0, 2.0**-60])),)
    x = np.ones((1, 2))
    assert (int(jacobian_rank(net, params, x)), int(jacobian_rank(net, params, x, exact=True))) == (
        1,
        2,
    )


def test_the_circle_has_jacobian_rank_one_and_needs_two_dimensions():
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    tangents = np.stack([-np.sin(angles), np.cos(angles)], axis=1)[:, :, None]
    identity = nm.MLP((2, 2), bias=False)
    params = (nm.Layer(np.eye(2)),)
    assert int(jacobian_rank(identity, params, x, tangents=tangents)) == 1
    assert int(jacobian_rank(identity, params, x)) == 2


def test_rank_inequalities_of_compositions_and_sums(rng):
    A, B = (
        rng.normal(size=(4, 2)) @ rng.normal(size=(2, 4)),
        rng.normal(size=(4, 3)) @ rng.normal(size=(3, 4)),
    )

    def rank(M):
        return int(jacobian_rank(lambda p, x: x @ p.T, M, np.ones((1, 4))))

    assert rank(A @ B) <= min(rank(A), rank(B)) == 2
    assert rank(A + B) <= rank(A) + rank(B) == 5


def test_structure_finds_a_planted_bottleneck(rng):
    L, k = 12, 2
    widths = (5, *[8] * (L - 1), 5)
    params = list(near_isometric(rng, widths, k, 0.02))
    params[0] = nm.Layer(params[0].weight + 0.8 * rng.normal(size=(8, 5)), params[0].bias)
    net = nm.MLP(widths)
    x = np.abs(rng.normal(size=(30, 5)))
    found = bottleneck_structure(net, tuple(params), x)
    assert found.rank == k
    assert set(range(2, L + 1)) <= set(found.layers) | {1}
    assert 1 not in found.layers
    assert np.all(found.data["gap"].values[1:] > 5)
    outside = L - len(found.layers)
    assert outside <= 4 * found.budget
    assert found.data["share"].sum() <= found.budget * (1 + 1e-9)
    assert "bottleneck of rank 2" in str(found)
    kernel = nm.ntk(net, tuple(params), x, trace=True)
    np.testing.assert_allclose(found.data["trace"].values.sum(), np.trace(kernel) / 30, rtol=1e-10)


def test_a_rank_that_no_jacobian_has_leaves_the_budget_open():
    """Most layers have rank 4 and Jf has rank 2: Theorem 6 says nothing about rank 4, and so
    does the result.
    """
    net = nm.MLP((2, 4, 4, 4, 2), bias=False)
    params = (
        nm.Layer(np.eye(4, 2)),
        nm.Layer(np.eye(4)),
        nm.Layer(np.eye(4)),
        nm.Layer(np.eye(2, 4)),
    )
    found = bottleneck_structure(net, params, np.ones((3, 2)))
    assert found.rank == 2
    deeper = nm.MLP((2, 4, 4, 4, 4, 2), bias=False)
    open_budget = bottleneck_structure(
        deeper, (*params[:2], params[1], params[2], params[3]), np.ones((3, 2))
    )
    assert open_budget.rank == 4
    assert open_budget.budget == np.inf
    assert np.isnan(open_budget.data["share"]).all()
    assert "share" in str(found) and "share" not in str(open_budget)
    assert "no budget: every Jf(x) has a rank below 4" in str(open_budget)


def test_structure_plots_itself(rng):
    import matplotlib

    matplotlib.use("Agg")
    net = nm.MLP((2, 2, 2), bias=False)
    axes = bottleneck_structure(net, (nm.Layer(np.eye(2)),) * 2, np.ones((1, 2))).plot()
    assert axes.get_xlabel() == "layer"
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p: bottleneck_frames(RELU, p, np.ones((2, 3))), "holds 2 points; pass one"),
        (lambda p: bottleneck_frames(RELU, p, np.ones((1, 3)), rank=9), "`rank` is 9, but Jf"),
        (
            lambda p: bottleneck_structure(RELU, p, np.ones((1, 3)), threshold=2.0),
            "`threshold` is 2.0",
        ),
        (
            lambda p: bottleneck_structure(RELU, p, np.ones((1, 3)), rank=7),
            "`rank` is 7; pass a whole number",
        ),
        (
            lambda p: two_point_bound(
                LEAKY, random_params(np.random.default_rng(0), LEAKY.widths), np.ones((1, 3))
            ),
            "for ReLU",
        ),
        (
            lambda p: jacobian_rank(
                TANH,
                random_params(np.random.default_rng(0), TANH.widths),
                np.ones((1, 3)),
                exact=True,
            ),
            "tanh",
        ),
    ],
)
def test_bad_input(call, message, rng):
    with pytest.raises(ValueError, match=message):
        call(random_params(rng, RELU.widths))
