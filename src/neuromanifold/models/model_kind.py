"""Which description a model is: the one place that asks for its class. What a graph can tell is
asked of the graph instead.
"""

from typing import Any

from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.models.mlp import MLP
from neuromanifold.models.stack import LinearStack
from neuromanifold.numerics.validation import indefinite


def perceptron(f: Any) -> MLP | None:
    """The model itself where it is a described perceptron."""
    return f if isinstance(f, MLP) else None


def filters(f: Any) -> LinearConvNet | None:
    """The model itself where it is a described linear convolutional network."""
    return f if isinstance(f, LinearConvNet) else None


def with_all_biases(f: Any, params: Any) -> tuple[Any, Any]:
    """Linear layers of which some have a bias as an `nm.MLP` with zeros for the others; any other
    model as it is.
    """
    return f.with_zeros(params) if isinstance(f, LinearStack) else (f, params)


def require_perceptron(net: Any, why: str) -> MLP:
    """The network; anything but an `MLP` is refused, `why` ending the sentence."""
    if (found := perceptron(net)) is None:
        raise TypeError(f"`net` is {indefinite(net)}; {why}.")
    return found


def require_filters(net: Any, why: str) -> LinearConvNet:
    """The network; anything but a `LinearConvNet` is refused, `why` ending the sentence."""
    if (found := filters(net)) is None:
        raise TypeError(f"`net` is {indefinite(net)}; {why}.")
    return found
