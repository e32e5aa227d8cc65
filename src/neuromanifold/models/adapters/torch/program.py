"""A program: PyTorch's exported graph as plain data, and its evaluation in JAX."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.adapters.torch.operations import OPERATIONS, Refusal
from neuromanifold.models.adapters.torch.operations.normalisation import takes_moments
from neuromanifold.numerics.precision import dtype_of, widest

Shape = tuple[int | None, ...]


class Untranslatable(ValueError):
    """A program that cannot be evaluated in JAX; the message is the sentence for the user."""


@dataclass(frozen=True)
class Ref:
    """A value that the program computed, or was given, under this name."""

    name: str


@dataclass(frozen=True)
class Dtype:
    """A dtype as an argument; the interpreter puts the run's own in its place."""

    name: str


@dataclass(frozen=True)
class TorchNode:
    """One operation: what it is called on, the names of its results with their dtypes, and where
    it stands in the source.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[str, ...]
    dtypes: tuple[str | None, ...]
    many: bool
    where: str


@dataclass(frozen=True)
class Input:
    """What the program is given: shape (None where any length will do) and dtype."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """A straight list of operations on parameters, constants and inputs.

    `parameters` and `constants` say which name each placeholder stands for; tied parameters share
    one. `dtype` is the widest floating dtype of the parameters the program was made with.
    """

    nodes: tuple[TorchNode, ...]
    parameters: Mapping[str, str]
    constants: Mapping[str, str]
    inputs: tuple[Input, ...]
    outputs: tuple[Any, ...]
    dtype: str

    def __call__(
        self,
        params: Mapping[str, Any],
        constants: Mapping[str, Any],
        leaves: tuple[Any, ...],
        largest: float | int = np.inf,
    ) -> list[Any]:
        """The outputs, computed in the widest dtype of parameters and inputs; no array may take
        more than `largest` bytes.
        """
        cast = Casting(np.dtype(self.dtype), widest(params, leaves))
        values = {place: cast(params[name], self.dtype) for place, name in self.parameters.items()}
        values |= {
            place: cast(constants[name], dtype_of(constants[name]))
            for place, name in self.constants.items()
        }
        values |= {
            given.name: cast(leaf, given.dtype)
            for given, leaf in zip(self.inputs, leaves, strict=True)
        }
        for node in self.nodes:
            values.update(_results(node, cast, values, largest))
        return [resolve(output, values, cast) for output in self.outputs]


@dataclass(frozen=True)
class Casting:
    """Which dtype stands for which.

    A floating dtype at least as wide as the program's own follows the run: a float32 module run on
    float64 parameters computes in float64 throughout, and so do the steps of a float64 module that
    name float32. Else a narrower one is a rounding the program asks for, and stays.
    """

    own: np.dtype
    run: np.dtype

    def __getitem__(self, name: Any) -> np.dtype:
        dtype = np.dtype(name)
        if dtype.kind == "c":
            dtype = np.result_type(dtype, self.run)
        elif jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= min(self.own.itemsize, 4):
            dtype = self.run if self.run.itemsize >= dtype.itemsize else dtype
        return jax.dtypes.canonicalize_dtype(dtype)

    def __call__(self, value: Any, name: Any) -> Any:
        return jnp.asarray(value, self[name])


def _results(
    node: TorchNode, cast: Casting, values: Mapping[str, Any], largest: float | int
) -> Iterator[tuple[str, Any]]:
    operation = OPERATIONS.get(node.target)
    if operation is None:
        raise Untranslatable(unknown(node))
    args, kwargs = resolve(node.args, values, cast), resolve(node.kwargs, values, cast)
    try:
        result = operation(*args, **kwargs)
    except Refusal as refusal:
        raise Untranslatable(
            f"`module` uses {node.target} at {node.where}, which {refusal}."
        ) from None
    results = result if node.many else (result,)[: len(node.outputs)]
    for name, dtype, value in zip(node.outputs, node.dtypes, results, strict=True):
        if hasattr(value, "shape") and math.prod(value.shape) * value.dtype.itemsize > largest:
            raise Untranslatable(
                f"`module` makes an array of shape {value.shape} by {node.target} at "
                f"{node.where}, which is too large."
            )
        yield name, value if dtype is None or value is None else cast(value, dtype)


def unknown(node: TorchNode) -> str:
    """The sentence for an operation that the table does not have."""
    return (
        f"`module` uses {node.target} at {node.where}, an operation that is not in the table; "
        "write that step with others, or wrap the network as nm.FunctionModel."
    )


def unknown_operations(program: TorchProgram) -> list[TorchNode]:
    """The nodes that no entry of the table computes."""
    return [node for node in program.nodes if node.target not in OPERATIONS]


def refuse_batch_statistics(program: TorchProgram) -> None:
    """Refuse batch normalisations that take their moments from samples; of weights they may."""
    sampled = {given.name for given in program.inputs}
    for node in program.nodes:
        if sampled.isdisjoint(names_in((node.args, node.kwargs))):
            continue
        sampled.update(node.outputs)
        if takes_moments(node.target, node.args):
            raise Untranslatable(
                f"`module` uses {node.target} at {node.where}, which standardises by the batch, so "
                "that rows depend on each other; call `module.eval()` first, and build it with "
                "track_running_stats=True."
            )


def names_in(argument: Any) -> Iterator[str]:
    """The names that an argument refers to."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, (list, tuple, Mapping)):
        for part in argument.values() if isinstance(argument, Mapping) else argument:
            yield from names_in(part)


def resolve(argument: Any, values: Mapping[str, Any], cast: Any) -> Any:
    """An argument with names replaced by values and dtypes by `cast[name]`, the run's."""
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, Dtype):
        return cast[argument.name]
    if isinstance(argument, (list, tuple)):
        return [resolve(part, values, cast) for part in argument]
    if isinstance(argument, Mapping):
        return {name: resolve(part, values, cast) for name, part in argument.items()}
    return argument
