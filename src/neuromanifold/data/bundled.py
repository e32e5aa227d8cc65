"""Real data that come with scikit-learn: handwritten digits, diabetes."""

from typing import Any

import numpy as np

from neuromanifold.data.dataset import Dataset
from neuromanifold.runtime.packages import need


def digits() -> Dataset:
    """1,797 handwritten digits of 8×8 pixels, grey values divided by 16; targets one-hot."""
    bunch: Any = need("sklearn.datasets").load_digits()
    return Dataset(
        name="digits",
        x=bunch.data / 16.0,
        y=np.eye(10)[bunch.target],
        features=tuple(bunch.feature_names),
        targets=tuple(str(digit) for digit in range(10)),
        licence="CC BY 4.0",
        source="UCI 80 (Alpaydin and Kaynak, 1998), test part, with scikit-learn",
        notes="grey values in [0, 1]; targets one-hot",
    )


def diabetes() -> Dataset:
    """442 patients, 10 features of mean 0 and sum of squares 1, as scikit-learn scales them;
    disease progression.
    """
    bunch: Any = need("sklearn.datasets").load_diabetes()
    return Dataset(
        name="diabetes",
        x=bunch.data,
        y=bunch.target[:, None],
        features=tuple(bunch.feature_names),
        targets=("progression",),
        licence="BSD-3-Clause (with scikit-learn)",
        source="Efron, Hastie, Johnstone and Tibshirani (2004), with scikit-learn",
        notes="features of mean 0 and sum of squares 1; target as it is",
    )
