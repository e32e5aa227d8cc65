"""Parameters of one precision, data of another: every verb computes in the wider one, whatever
the model itself would refuse.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import api
import neuromanifold as nm
from test_constants import P, X, Y, model

WIDE, TARGET = np.asarray(X, np.float64), np.asarray(Y, np.float64)


def strict(params: Any, x: Any) -> Any:
    """As `lax.conv_general_dilated`: arguments of two dtypes are an error."""
    if len(found := {leaf.dtype for leaf in jax.tree.leaves((params, x))}) > 1:
        raise TypeError(f"requires arguments to have the same dtypes, got {found}")
    return model()(params, x)


@pytest.mark.parametrize("verb", api.VERBS)
def test_a_verb_takes_float32_parameters_with_float64_data(verb: str, tmp_path: Path):
    api.VERBS[verb](strict, P, WIDE, TARGET, tmp_path)


def test_a_tracker_takes_them_too():
    tracker = nm.Tracker(strict, WIDE, TARGET)
    tracker(0, P)
    y = np.maximum(
        (WIDE * [0.1, 0.7])[:, ::-1] @ np.asarray(P["v"], np.float64) - 0.3, 0
    ) @ np.asarray(P["w"], np.float64)
    np.testing.assert_allclose(
        float(tracker.timeline.data["loss"][0]), np.mean((y - TARGET) ** 2), rtol=1e-12
    )


def test_the_model_itself_refuses_them():
    with pytest.raises(TypeError, match="the same dtypes"):
        strict(P, WIDE)
