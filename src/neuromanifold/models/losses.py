"""Losses `loss(prediction, target) → scalar`; each says its constants, because flows and learning
rates depend on them.

With n samples, o outputs and r = prediction − target:

| loss | value |
|---|---|
| `mse` | ‖r‖² / (n·o)   (torch's `MSELoss`) |
| `half_squared_error` | ‖r‖² / (2n) |
| `squared_error` | ‖r‖² |
| `cross_entropy` | −(1/n) Σ_i Σ_k target_ik log softmax(prediction_i)_k |
| `huber` | mean over all entries of r²/2 where |r| ≤ δ, else δ(|r| − δ/2)   (torch's `HuberLoss`) |
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.precision import boundary, promote, widest
from neuromanifold.numerics.validation import indefinite

Loss = Callable[[Any, Any], Any]
Outputs = Any
"""What a model returns, or what it should: an array whose first axis counts the samples."""

__all__ = ["cross_entropy", "half_squared_error", "huber", "mse", "squared_error"]


def check_loss(loss: Any, y: Any) -> None:
    """Refuse what is no function of two arrays like `y` that JAX can differentiate to a number."""
    if not callable(loss):
        named = isinstance(loss, str) and loss in __all__
        raise TypeError(f"`loss` is {loss!r}; pass {f'`nm.losses.{loss}`' if named else _REMEDY}.")
    try:
        hash(loss)
    except TypeError:
        raise TypeError(
            f"`loss` is {indefinite(loss)}, which cannot be hashed; pass {_REMEDY}."
        ) from None
    _check_number(loss, np.shape(y))


_REMEDY = "a function of `nm.losses`, or one of jax.numpy: `lambda prediction, target: …`"


@lru_cache(maxsize=256)
def _check_number(loss: Loss, shape: tuple[int, ...]) -> None:
    like = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    try:
        shape = jax.eval_shape(loss, like, like).shape
    except Exception as error:  # code of other libraries refuses tracers in its own ways
        said = str(error).partition("\n")[0]
        raise TypeError(
            f"`loss` does not take (prediction, target) as JAX arrays ({type(error).__name__}: "
            f"{said}); pass {_REMEDY}."
        ) from None
    if shape:
        raise TypeError(
            f"`loss` returns an array of shape {shape}; return one number, for example its "
            "`.mean()`."
        )


def _evaluate(loss: Loss, prediction: Any, target: Any) -> Any:
    shapes = tuple(np.shape(prediction)), tuple(np.shape(target))
    if shapes[0] != shapes[1]:
        classes = len(shapes[0]) == 2 and shapes[0][1] > 1 and shapes[1] == shapes[0][:1]
        remedy = (
            f"of classes 0, 1, … pass `np.eye({shapes[0][1]})[target]`"
            if classes
            else "pass equal shapes"
        )
        raise ValueError(
            f"`prediction` has shape {shapes[0]} but `target` has {shapes[1]}; {remedy}: they "
            "would broadcast to a wrong loss."
        )
    if not np.shape(prediction):
        raise ValueError(
            "`prediction` is a scalar; pass an array whose first axis counts the samples."
        )
    with boundary(prediction, target) as leave:
        return leave(loss(*promote((prediction, target), widest(prediction, target))))


def mse(prediction: Outputs, target: Outputs) -> Float[Any, ""]:
    """Return ‖prediction − target‖² / (n·o): the mean over all entries, torch's `MSELoss`.

    >>> float(mse(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])))
    2.5
    """
    return _evaluate(lambda p, t: jnp.mean((p - t) ** 2), prediction, target)


def half_squared_error(prediction: Outputs, target: Outputs) -> Float[Any, ""]:
    """Return ‖prediction − target‖² / (2n): the mean over samples of ½‖·‖².   [teleport]

    >>> float(half_squared_error(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])))
    2.5
    >>> float(half_squared_error(np.array([[1.0], [2.0]]), np.array([[0.0], [0.0]])))
    1.25
    """
    return _evaluate(lambda p, t: jnp.sum((p - t) ** 2) / (2 * len(p)), prediction, target)


def squared_error(prediction: Outputs, target: Outputs) -> Float[Any, ""]:
    """Return ‖prediction − target‖²: the sum over all entries.   [riemann]

    >>> float(squared_error(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])))
    5.0
    """
    return _evaluate(lambda p, t: jnp.sum((p - t) ** 2), prediction, target)


def cross_entropy(prediction: Outputs, target: Outputs) -> Float[Any, ""]:
    """Return −(1/n) Σ_i Σ_k target_ik log softmax(prediction_i)_k; `prediction` holds logits,
    `target` probabilities or one-hots.

    >>> float(cross_entropy(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])))       # log 2
    0.6931471805599453
    """
    return _evaluate(lambda p, t: -jnp.sum(t * jax.nn.log_softmax(p)) / len(p), prediction, target)


def huber(prediction: Outputs, target: Outputs, *, delta: float | int = 1.0) -> Float[Any, ""]:
    """Return the mean over all entries of r = `prediction` − `target`: r²/2 where |r| ≤ δ and δ(|r|
    − δ/2) beyond, δ = `delta`, as torch's `HuberLoss`.

    >>> float(huber(np.array([[0.5], [3.0]]), np.array([[0.0], [0.0]])))      # (0.125 + 2.5) / 2
    1.3125
    """
    if not delta > 0:
        raise ValueError(f"`delta` is {delta}; pass a positive number.")

    def loss(p: Any, t: Any):
        clipped = jnp.clip(p - t, -delta, delta)
        return jnp.mean(clipped * (p - t) - clipped**2 / 2)

    return _evaluate(loss, prediction, target)
