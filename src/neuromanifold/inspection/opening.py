"""What the command line is given, opened: model file, samples and targets; or the example that
is trained where nothing is given.
"""

import re
import sys
from typing import Any

import jax
import numpy as np

from neuromanifold.data import load as load_data
from neuromanifold.data import names, read
from neuromanifold.dynamics import adam_l2, train
from neuromanifold.models import MLP, load, losses
from neuromanifold.models.function import output_shape
from neuromanifold.models.init import he_bias
from neuromanifold.models.losses import Loss
from neuromanifold.numerics.results import count_of
from neuromanifold.numerics.validation import leading_axis

_EXAMPLE_WIDTHS = (1, 10, 10, 10, 10, 1)
_LOSSES = ("mse", "cross_entropy", "half_squared_error", "squared_error", "huber")


def open_files(
    model: str, data: str | None, targets: str | None, reading: dict[str, Any]
) -> tuple[Any, Any, Any, np.ndarray | None]:
    """(f, params, x, y) of the files; `reading` are the options of `nm.load`."""
    x, y = (None, None) if data is None else samples(data)
    net, params = load(model, example=example_of(reading, x), **reading)
    if x is None:
        raise ValueError(
            f"`DATA` is missing: say on which samples to inspect {model}, for example f2, "
            "samples.npy or table.csv."
        )
    shape = fitting_shape(net, params, x)
    if targets is not None:
        return net, params, x, fitting(read(targets), shape, leading_axis(x))
    return net, params, x, y if y is not None and shape == y.shape[1:] else None


def fitting_shape(f: Any, params: Any, x: Any) -> tuple[int, ...]:
    """The shape of one output, where the network takes samples of the shape of `x`."""
    try:
        return output_shape(f, params, x)
    except (TypeError, ValueError) as error:
        found = re.search(r"takes (?:\(n, )?(\d+)\b(?!,)", str(error))
        if found is not None and np.ndim(x) == 2 and not isinstance(x, dict | tuple):
            raise ValueError(
                f"`DATA` does not fit: samples have {count_of(x.shape[1], 'feature')}; the network "
                f"takes {found[1]}."
            ) from None
        error.args = (str(error).replace("`x`", "`DATA`", 1),)
        raise


def example_of(reading: dict[str, Any], x: Any) -> Any:
    """A few samples, which a factory's module is exported with."""
    return None if reading.get("factory") is None or x is None else jax.tree.map(lambda a: a[:3], x)


def samples(data: str) -> tuple[Any, Any]:
    """(x, y) of a data set's name, (x, None) of a file."""
    if data not in names():
        return read(data), None
    dataset = load_data(data)
    return dataset.x, dataset.y


def fitting(y: Any, shape: tuple[int, ...], n: int) -> np.ndarray:
    """The targets in the shape of the outputs; whole numbers 0, …, o − 1 are classes and become
    indicators.

    >>> fitting(np.array([[1.0], [0.0]]), (3,), 2).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    y = np.asarray(y)
    if y.shape == (n, *shape):
        return y
    if y.size == n and len(shape) == 1 and np.isin(y, np.arange(shape[0])).all():
        return np.eye(shape[0])[y.ravel().astype(int)]
    raise ValueError(
        f"`--targets` has shape {y.shape} but the outputs have {(n, *shape)}; pass one row for "
        "each sample, or its class: 0, 1, …"
    )


def check_loss_fits(name: str | None, y: Any) -> None:
    """Refuse a loss that was asked for where there are no targets, or where it is always 0."""
    if name is not None and y is None:
        raise ValueError(
            f"`--loss` is {name!r} and there is nothing to measure it against; pass `--targets`, "
            "or leave `--loss` out."
        )
    if name == "cross_entropy" and y.shape[-1] == 1:
        raise ValueError(
            "`--loss` is cross_entropy and the network has 1 output; it needs one for each class: "
            "pass mse, or another network."
        )


def index_of(text: str | None) -> Any:
    """What `--outputs` says: a number, or an index of integers and slices.

    >>> index_of("8"), index_of("-1, :8"), index_of("2:")
    (8, (-1, slice(None, 8, None)), (slice(2, None, None),))
    """
    if text is None or re.fullmatch(r"\s*\d+\s*", text):
        return None if text is None else int(text)

    def part(word: str) -> Any:
        ends = [int(end) if end.strip() else None for end in word.split(":")]
        return ends[0] if len(ends) == 1 else slice(*ends)

    try:
        found = tuple(part(word) for word in text.split(","))
    except (TypeError, ValueError):
        found = (None,)
    if None in found:
        raise ValueError(
            f"`--outputs` is {text!r}; pass how many, such as 8, or an index, such as '-1, :8'."
        )
    return found


def loss_named(name: str) -> Loss:
    """A loss of the library by its name."""
    if name not in _LOSSES:
        raise ValueError(f"`--loss` is {name!r}; pass one of {', '.join(_LOSSES)}.")
    return getattr(losses, name)


def example(epochs: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """The paper's univariate network, trained on f2 as the paper trains it.   [complexity, Sec. 5]"""
    net, dataset = MLP(_EXAMPLE_WIDTHS), load_data("f2")
    init_key, train_key = jax.random.split(jax.random.key(seed))
    training = train(
        net,
        net.init(key=init_key, scheme=he_bias, runs=1),
        dataset.x,
        dataset.y,
        key=train_key,
        epochs=epochs,
        loss=losses.mse,
        optimizer=adam_l2(0.01, 1e-4),
        batch_size=16,
        progress=sys.stderr.isatty(),
    )
    return net, jax.tree.map(lambda leaf: leaf[0], training.params), dataset.x, dataset.y
