"""Eigenvalues by both routes, and the numbers derived from them, against NumPy and their
definitions.
"""

import numpy as np
import pytest

import cast
import neuromanifold as nm

EPS = 2.0**-52


def eigenvalues(member: cast.Member, params, x: np.ndarray) -> np.ndarray:
    jacobian = member.jacobian(params, x)
    return np.linalg.eigvalsh(jacobian @ jacobian.T)[::-1]


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_eigenvalues_are_those_of_the_dense_kernel(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    expected = eigenvalues(member, params, x)
    found = nm.spectrum(member.model, params, x)
    assert found.eigenvalues.dtype == np.float64
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=0, atol=200 * EPS * expected[0])
    assert np.all(np.diff(found.eigenvalues) <= 0)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("member", [cast.BIAS_FREE, cast.CONVOLUTION], ids=str)
def test_lanczos_finds_the_largest(member: cast.Member, k: int, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 30)
    expected = eigenvalues(member, params, x)
    found = nm.spectrum(member.model, params, x, k=k)
    assert found.eigenvalues.shape == (k,)
    np.testing.assert_allclose(found.eigenvalues, expected[:k], rtol=0, atol=1e-10 * expected[0])
    assert not np.allclose(found.eigenvalues, expected[1 : k + 1], rtol=1e-6)


@pytest.mark.parametrize("member", [cast.TANH, cast.OUTPUTS, cast.SHARED], ids=str)
def test_derived_numbers_follow_their_definitions(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    found = nm.spectrum(member.model, params, x)
    values = np.maximum(eigenvalues(member, params, x), 0)
    shares = values[values > 0] / values.sum()
    np.testing.assert_allclose(
        found.effective_rank, np.exp(-(shares * np.log(shares)).sum()), rtol=1e-9
    )
    np.testing.assert_allclose(found.stable_rank, values.sum() / values[0], rtol=1e-9)


def test_condition_is_the_ratio_of_the_extreme_eigenvalues(rng: np.random.Generator):
    params, x = cast.TANH.draw(rng), cast.TANH.inputs(rng, 4)
    values = eigenvalues(cast.TANH, params, x)
    np.testing.assert_allclose(
        nm.spectrum(cast.TANH.model, params, x).condition, values[0] / values[-1], rtol=1e-4
    )


def test_a_kernel_that_can_be_read_by_hand():
    # Θ = diag(1, 4): a diagonal design.
    found = nm.spectrum(lambda params, x: x @ params, np.zeros(2), np.diag([1.0, 2.0]))
    np.testing.assert_allclose(found.eigenvalues, [4, 1], rtol=1e-14)
    np.testing.assert_allclose(found.stable_rank, 1.25, rtol=1e-14)
    np.testing.assert_allclose(found.condition, 4, rtol=1e-14)
    np.testing.assert_allclose(
        found.effective_rank, np.exp(-0.8 * np.log(0.8) - 0.2 * np.log(0.2)), rtol=1e-14
    )


def test_a_singular_kernel_has_no_finite_condition():
    found = nm.spectrum(lambda params, x: x @ params, np.zeros(1), np.array([[1.0], [2.0], [3.0]]))
    assert found.condition > 1e12
    np.testing.assert_allclose([found.effective_rank, found.stable_rank], 1, rtol=1e-10)


def test_the_memory_budget_does_not_change_the_spectrum(rng: np.random.Generator):
    params, x = cast.OUTPUTS.draw(rng), cast.OUTPUTS.inputs(rng, 30)
    tight = nm.spectrum(cast.OUTPUTS.model, params, x, k=4, memory=20_000)
    np.testing.assert_allclose(
        tight.eigenvalues, eigenvalues(cast.OUTPUTS, params, x)[:4], rtol=1e-9
    )
