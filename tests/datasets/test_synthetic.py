"""f1–f3 and g1–g3 are what the paper's Section 5 and Appendix B.1 define."""

import jax
import numpy as np
import pytest

from neuromanifold import data

SINES = {  # coefficient of sin(kπ·) by input
    "f1": [{2: 1.0}],
    "f2": [{2: 1.0, 4: 0.5}],
    "f3": [{2: 1.0, 4: 0.5, 16: 0.4}],
    "g1": [{2: 1.0}, {2: 1.0}],
    "g2": [{2: 1.0, 4: 0.5}, {2: 1.0}],
    "g3": [{2: 1.0, 4: 0.5}, {2: 1.0, 4: 0.4}],
}


def clean(name: str, x: np.ndarray) -> np.ndarray:
    terms = [
        c * np.sin(k * np.pi * x[:, i])
        for i, sines in enumerate(SINES[name])
        for k, c in sines.items()
    ]
    return 1.5 + sum(terms)


@pytest.mark.parametrize("name", ["f1", "f2", "f3"])
def test_univariate_data_are_the_function_at_100_points_with_noise_on_inputs_and_outputs(name: str):
    grid = np.linspace(0, 1, 100)[:, None]
    draws = [data.load(name, key=seed) for seed in range(50)]
    input_noise = np.array([d.x - grid for d in draws])
    output_noise = np.array([d.y[:, 0] - clean(name, grid) for d in draws])
    for noise in (input_noise, output_noise):  # 5,000 draws of N(0, 0.01²): 6 standard errors
        assert abs(noise.mean()) < 6 * 0.01 / 5000**0.5
        assert abs(noise.std() / 0.01 - 1) < 6 / 10000**0.5
    assert abs(np.corrcoef(input_noise.ravel(), output_noise.ravel())[0, 1]) < 6 / 5000**0.5


@pytest.mark.parametrize("name", ["g1", "g2", "g3"])
def test_bivariate_data_are_the_function_on_the_grid(name: str):
    d = data.load(name)
    steps = d.x * 19
    assert d.x.shape == (400, 2)
    assert {tuple(row) for row in steps.round().tolist()} == {
        (i, j) for i in range(20) for j in range(20)
    }
    np.testing.assert_allclose(steps, steps.round(), rtol=4 * np.finfo(float).eps)
    np.testing.assert_allclose(d.y[:, 0], clean(name, d.x), rtol=1e-13, atol=0)


def test_noise_depends_on_key_and_name_only():
    assert np.array_equal(data.load("f1", key=7).x, data.load("f1", key=jax.random.key(7)).x)
    assert np.array_equal(data.load("f1").y, data.load("f1", key=0).y)
    assert not np.array_equal(data.load("f1", key=1).x, data.load("f1", key=2).x)
    assert not np.array_equal(data.load("f1").x, data.load("f2").x)


def test_the_shift_makes_f1_and_f2_positive_but_not_f3_although_the_paper_says_all():
    lowest = [data.load(name).y.min() for name in ("f1", "f2", "f3")]
    assert lowest[0] > 0.4 and lowest[1] > 0.1 and lowest[2] < -0.1


def test_float64_survives_a_global_flag_that_is_off_or_on(x64: bool):
    d = data.load("f3")
    assert d.x.dtype == d.y.dtype == np.float64
    assert d.x[3, 0] == DRAWN


DRAWN = data.load("f3").x[3, 0]
