"""What [teleport] proves about alignment and about symmetries: identities, bounds, and two
printed statements that fail.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.models import losses
from neuromanifold.numerics.precision import arithmetic

LOSSES = [
    losses.half_squared_error,
    losses.mse,
    losses.squared_error,
    losses.cross_entropy,
    losses.huber,
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_the_gradient_is_the_alignment(loss, key, rng):
    """P 5.1: ‖∇L‖² = ‖f‖² A/(η|X|²), f = ∂C/∂F per sample, L = ΣC/|X|; here with f/|X| = ∂L/∂F."""
    net = nm.MLP((3, 12, 4), "tanh")
    params, x, y = (
        net.init(key=key, dtype="float64"),
        rng.standard_normal((9, 3)),
        rng.dirichlet(np.ones(4), 9),
    )
    lr = 0.3
    with arithmetic():
        flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
        gradient = np.asarray(jax.grad(lambda p: loss(net(unravel(p), jnp.asarray(x)), y))(flat))
        f = 9 * np.asarray(jax.grad(loss)(jnp.asarray(net(params, x)), y))
    a = nm.alignment(net, params, x, y, loss=loss, lr=lr)
    np.testing.assert_allclose(gradient @ gradient, (f**2).sum() * a / (lr * 9**2), rtol=1e-13)


def test_small_alignment_means_slow_training(rng, draws, tally):
    """P F.1: L(s)/L(0) ≥ (1−A)^{2s} ≥ 1−2sA for f(s+1) = (I−Θ)f(s), at every spectrum, also
    beyond 2.
    """
    count, steps = draws(200), np.arange(1, 8)
    beyond = 0
    for _ in range(count):
        size = rng.integers(1, 9)
        spectrum = rng.exponential(rng.choice([0.05, 0.5, 3.0]), size)
        weights = rng.dirichlet(np.full(size, rng.choice([0.1, 1.0])))
        beyond += spectrum.max() > 2
        a = float(weights @ spectrum)
        ratio = ((1 - spectrum[None, :]) ** (2 * steps[:, None])) @ weights
        bound = (1 - a) ** (2.0 * steps)
        assert (ratio >= bound * (1 - 1e-12)).all()
        assert (bound >= 1 - 2 * steps * a - 1e-12 * (1 + bound)).all()
        if a < 1:
            assert (
                -np.log(np.maximum(ratio, 1e-300)) <= 2 * steps * np.log(1 / (1 - a)) + 1e-9
            ).all()
    tally(beyond, of=count, what="spectra with an eigenvalue above 2")


def test_a_single_eigenvalue_attains_the_bound_and_a_signed_one_breaks_it():
    """Jensen is sharp for one eigenvalue; the kernel's positivity is not needed, the weights'
    is.
    """
    assert pytest.approx((1 - 0.3) ** (2 * 2)) == (1 - 0.3) ** 4
    spectrum, weights = np.array([1.0, 0.0]), np.array([1.5, -0.5])
    a = weights @ spectrum
    assert (1 - spectrum) ** 2 @ weights < (1 - a) ** 2


def test_equation_87_as_printed_fails_and_its_reverse_holds(rng, draws, tally):
    """Printed: L(s+1) − L(s) ≤ −fᵀΘf. Convexity gives ≥. One sample, ½F², Θ = 1, F = 1: −½ on
    the left, −1 on the right.
    """
    left, right = 0.5 * (1 - 1.0) ** 2 - 0.5, -1.0
    assert left > right
    fails = 0
    for _ in range(count := draws(100)):
        n, o = rng.integers(1, 5), rng.integers(2, 4)
        root = rng.standard_normal((n * o, n * o))
        kernel = root @ root.T * rng.choice([0.01, 1.0]) / (n * o)
        outputs, target = rng.standard_normal((n, o)), np.eye(o)[rng.integers(0, o, n)]

        def total(z, target=target):
            return -(target * jax.nn.log_softmax(z)).sum()

        with arithmetic():
            f = np.asarray(jax.grad(total)(jnp.asarray(outputs)))
            moved = outputs - (kernel @ f.ravel()).reshape(n, o)
            change = float(total(jnp.asarray(moved)) - total(jnp.asarray(outputs)))
        printed = -float(f.ravel() @ kernel @ f.ravel())
        assert change >= printed - 1e-12 * (1 + abs(printed))
        fails += change > printed + 1e-12 * (1 + abs(printed))
    tally(fails, of=count, what="draws in which the printed inequality fails")


def test_beyond_unit_curvature_the_signal_contracts_faster_than_the_alignment_allows():
    """Printed: for every convex loss f cannot contract faster than (1−A)^s. Loss F², one sample,
    Θ = ½: f(1) = 0, A = ½.
    """
    f0, kernel = 2.0 * 1.0, 0.5
    f1 = 2.0 * (1.0 - kernel * f0)
    assert abs(f1) < (1 - kernel) * abs(f0)


def moves(net, rng):
    """Symmetries of a network as functions of θ: what the laws below must hold for, diagonal or
    not.
    """
    width = net.widths[1]
    order = np.roll(np.arange(width), 1)  # not its own inverse
    scale = np.exp(rng.uniform(-1, 1, width))
    matrix = np.eye(width) + 0.3 * rng.standard_normal((width, width))

    def permuted(p):
        return (
            nm.Layer(p[0].weight[order], p[0].bias[order]),
            nm.Layer(p[1].weight[:, order], p[1].bias),
        )

    def rescaled(p):
        return (
            nm.Layer(p[0].weight * scale[:, None], p[0].bias * scale),
            nm.Layer(p[1].weight / scale, p[1].bias),
        )

    def general(p):
        inverse = jnp.linalg.inv(jnp.asarray(matrix))
        return (
            nm.Layer(matrix @ p[0].weight, matrix @ p[0].bias),
            nm.Layer(p[1].weight @ inverse, p[1].bias),
        )

    def bent(p):
        """Nonlinear: the scale of each neuron depends on the neuron's own outgoing weights and
        bias.
        """
        factor = 1 + 0.5 * jnp.tanh(p[0].bias * p[1].weight[0])
        return (
            nm.Layer(p[0].weight * factor[:, None], p[0].bias * factor),
            nm.Layer(p[1].weight / factor, p[1].bias),
        )

    return {
        "permutation": permuted,
        "scaling": rescaled,
        "general linear": general,
        "nonlinear": bent,
    }


@pytest.mark.parametrize("move", ["permutation", "scaling", "general linear", "nonlinear"])
def test_how_derivatives_transform(move, key, rng):
    """Eq. 15, 16, 22, 24, 67, 72 with Γ⁻¹_{αβ} = ∂g_β/∂θ_α: ∇F ↦ Γ∇F, Θ ↦ ∇FᵀΓᵀΓ∇F, H ↦ ΓHΓᵀ (+
    Γ(∂Γ)∇F).

    The printed H ↦ ΓᵀHΓ is right for symmetric Γ; a cyclic permutation tells the two apart. (The
    Hessian of a linear net of two layers is the same everywhere, so there both hold.)
    """
    activation = {"general linear": "identity", "permutation": "tanh"}.get(move, "relu")
    net = nm.MLP((2, 3, 1), activation)
    params, x = net.init(key=key, dtype="float64"), rng.standard_normal((1, 2))
    with arithmetic():
        flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
        g = moves(net, rng)[move]

        def moved(theta):
            return ravel_pytree(g(unravel(theta)))[0]

        def output(theta):
            return net(unravel(theta), jnp.asarray(x))[0, 0]

        there = moved(flat)
        np.testing.assert_allclose(output(there), output(flat), rtol=1e-12)
        gamma = np.linalg.inv(np.asarray(jax.jacobian(moved)(flat)).T)
        old, new = (np.asarray(jax.grad(output)(t)) for t in (flat, there))
        old_h, new_h = (np.asarray(jax.hessian(output)(t)) for t in (flat, there))
        second = np.asarray(jax.hessian(moved)(flat))  # [σ, μ, ρ] = ∂_μ∂_ρ g_σ
    np.testing.assert_allclose(new, gamma @ old, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(new @ new, old @ gamma.T @ gamma @ old, rtol=1e-9)
    change = -np.einsum("br,smr,sn->mbn", gamma, second, gamma)  # Eq. 72, ∂_μΓ_{βν}
    full = gamma @ old_h @ gamma.T + np.einsum("am,mbn,n->ab", gamma, change, old)
    np.testing.assert_allclose(new_h, full, rtol=1e-8, atol=1e-9)
    printed = gamma.T @ old_h @ gamma
    agrees = np.allclose(new_h, printed, rtol=1e-8, atol=1e-9)
    assert agrees == (move in ("scaling", "general linear"))
