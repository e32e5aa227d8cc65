"""The distribution of a kernel's eigenvalues through products, against all of them."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import neuromanifold as nm

NET = nm.MLP((4, 16, 2), "tanh")
N = 60
DECADES = range(1, 7)
Setting = tuple[Any, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def setting() -> Setting:
    params = NET.init(key=jax.random.key(0), scheme=nm.init.he_bias, dtype=np.float64)
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    x = np.random.default_rng(0).normal(size=(N, 4))
    return params, x, nm.spectrum(NET, params, x).eigenvalues


def density(params: Any, x: np.ndarray, **options: Any) -> Any:
    return nm.tangent.spectral_density(NET, params, x, largest=6, steps=20, **options)


def inside(found: Any, value: float) -> bool:
    return found.low <= value <= found.high


def test_what_is_said_of_the_spectrum_contains_it_and_not_that_of_another_kernel(
    setting: Setting,
) -> None:
    """Two standard errors of 16 probes: 95 of 100 at least 9 of 10; of 2Θ none."""
    params, x, values = setting
    p = values[values > 1e-12 * values[0]] / values.sum()
    truth = {
        "trace": values.sum(),
        "stable_rank": values.sum() / values[0],
        "effective_rank": np.exp(-(p * np.log(p)).sum()),
        "participation_ratio": values.sum() ** 2 / (values**2).sum(),
    }
    hits, wrong = [], 0
    for seed in range(12):
        found = density(params, x, probes=16, key=jax.random.key(seed))
        np.testing.assert_allclose(found.eigenvalues, values[:6], rtol=1e-9)
        hits += [inside(getattr(found, name), value) for name, value in truth.items()]
        counts = [
            (found.epsilon_rank(10.0**-i), (values > 10.0**-i * values[0]).sum()) for i in DECADES
        ]
        hits += [inside(estimate, count) for estimate, count in counts]
        wrong += inside(found.trace, 2 * values.sum())
    assert np.mean(hits) > 0.9
    assert not wrong


def test_quadrature_bounds_hold_for_each_probe(setting: Setting) -> None:
    """μ_i(λ > t) = Σ (v·u)² over eigenvectors u with λ > t lies between one weight less and one
    more than the nodes above t, whatever the number of steps (Chebyshev, Markov, Stieltjes).
    """
    params, x, values = setting
    kernel = np.asarray(nm.ntk(NET, params, x))
    thresholds = np.geomspace(values[8], values[values > 1e-12 * values[0]][-1], 15)
    seen = 0
    for steps in (3, 6, 12):
        found = nm.tangent.spectral_density(NET, params, x, largest=6, steps=steps, probes=4)
        vectors = np.linalg.eigh(kernel)[1][:, ::-1][:, 6:]
        draws = np.random.default_rng(0).standard_normal((len(kernel), 4))
        masses = (vectors.T @ draws) ** 2
        masses /= masses.sum(0)
        for i, t in itertools.product(range(4), thresholds):
            weights = found.weights[i][np.argsort(-found.nodes[i])]
            above, total = (found.nodes[i] > t).sum(), np.cumsum([0.0, *weights, 0.0])
            true = masses[values[6:] > t, i].sum()
            assert total[max(above - 1, 0)] - 1e-9 <= true <= total[above + 1] + 1e-9
            seen += abs(true - total[above]) > 1e-3
    assert seen > 20


def test_blocks_and_parameters_that_are_chosen(setting: Setting) -> None:
    params, x, _ = setting
    whole, cut = density(params, x), density(params, x, memory=100_000)
    np.testing.assert_allclose(cut.trace, whole.trace, rtol=1e-9)
    alone = np.linalg.eigvalsh(np.asarray(nm.ntk(NET, params, x, wrt="1")))[::-1]
    found = density(params, x, wrt="1", probes=16)
    np.testing.assert_allclose(found.eigenvalues, alone[:6], rtol=1e-8)
    assert inside(found.trace, alone.sum())
    assert not inside(found.trace, whole.trace.value)
    assert inside(found.epsilon_rank(1e-9), (alone > 1e-9 * alone[0]).sum())


def test_float32_counts_what_it_can_see_and_says_the_rest(setting: Setting) -> None:
    params, x, values = setting
    single = jax.tree.map(lambda a: a.astype(np.float32), params)
    found = density(single, x.astype(np.float32))
    assert inside(found.epsilon_rank(1e-3), (values > 1e-3 * values[0]).sum())
    with pytest.raises(
        ValueError, match="are rounding errors here; pass a larger one, or `params`"
    ):
        found.epsilon_rank(1e-6)
    assert density(params, x).epsilon_rank(1e-12).high <= NET.n_params < 2 * N
    with pytest.raises(ValueError, match="`probes` is 0; pass a whole number, at least 1"):
        density(params, x, probes=0)
