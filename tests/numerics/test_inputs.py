"""What users pass: the same numbers in any dress give the same result, numbers that would change
are refused.
"""

import jax
import numpy as np
import pytest

import cast
import neuromanifold as nm
from neuromanifold.numerics.inputs import plain_array

NET = nm.MLP((2, 3, 1))
PARAMS = jax.tree.map(lambda a: np.asarray(a, np.float64), NET.init(key=jax.random.key(0)))
X = np.random.default_rng(0).normal(size=(5, 2))
DRESSES = {
    "list": X.tolist(),
    "unmasked": np.ma.masked_array(X),
    "big-endian": X.astype(">f8"),
    "long double": X.astype(np.longdouble),
    "Fortran order": np.asfortranarray(X),
    "a view": np.repeat(X, 2, axis=0)[::2],
}


@pytest.mark.parametrize("name", DRESSES)
def test_the_same_numbers_give_the_same_result(name: str):
    x = DRESSES[name]
    with cast.unchecked():
        assert np.array_equal(nm.ntk(NET, PARAMS, x), nm.ntk(NET, PARAMS, X))
        assert np.asarray(nm.ntk(NET, PARAMS, x)).dtype == np.float64
        assert int(nm.functional_dimension(NET, PARAMS, x, exact=True)) == 4


@pytest.mark.parametrize(
    "x, message",
    [
        (
            np.ma.masked_array(X, mask=X > 1),
            r"`x` is a masked array with \d masked entries; drop or fill them",
        ),
        (
            X.astype(np.longdouble) + np.longdouble(2) ** -60,
            r"`x` is 0\.1257\d* at \[0, 0\] in float128, which float64",
        ),
        (
            np.full((5, 2), 2**53 + 1),
            r"`x` is 9007199254740993 at \[0, 0\], which float64 cannot hold \(10 such",
        ),
        (np.full((5, 2), 2**64 - 1, np.uint64), r"`x` is 18446744073709551615 at"),
    ],
)
def test_numbers_that_would_change_are_refused(x, message: str):
    for ask in (nm.ntk, nm.functional_dimension, nm.sampled_regions, nm.inspect):
        with cast.unchecked(), pytest.raises(ValueError, match=message):
            ask(NET, PARAMS, x)


@pytest.mark.parametrize(
    "dress", [lambda a: a.astype(">f8"), lambda a: a.astype(np.longdouble), np.ma.masked_array]
)
def test_parameters_are_plain_arrays(dress):
    with (
        cast.unchecked(),
        pytest.raises(TypeError, match=r"pass a plain array of float16, float32 or float64"),
    ):
        nm.ntk(NET, jax.tree.map(dress, PARAMS), X)


def test_exact_whole_numbers_beyond_the_limit_stay():
    assert plain_array([2**53 + 2, -(2**60)], "x").tolist() == [2**53 + 2, -(2**60)]
    assert plain_array(np.array([True]), "x").dtype == bool


def test_inspect_takes_what_is_valid():
    line = nm.MLP((1, 1))
    with cast.unchecked():
        assert nm.inspect(line, line.init(key=jax.random.key(0)), [[0.0], [0.5], [1.0]]).exact == 2
        huge = nm.inspect(NET, PARAMS, 1e300 * X)
    assert int(huge.exact) == 5 and huge.spectrum is None
    assert "overflow float64" in str(huge)
