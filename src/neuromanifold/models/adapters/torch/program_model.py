"""A program with the shapes of its input and output checked: the `apply` of an adapted network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.adapters.torch.origin import Origin
from neuromanifold.models.adapters.torch.program import (
    Input,
    TorchProgram,
    Untranslatable,
    refuse_batch_statistics,
)
from neuromanifold.models.adapters.torch.structure import fill, leaves
from neuromanifold.numerics.precision import arithmetic, dtype_of
from neuromanifold.numerics.validation import indefinite

# For one or two samples; a program from a file may ask for anything.
_LARGEST = 2**31


@dataclass(frozen=True, eq=False)
class ProgramModel:
    """Runs a program on samples; `takes` and `gives` are the structures of x and y, with numbers
    where arrays go.

    A program made for exactly one sample (its first axis has length 1) is mapped over the samples.
    `origin` is what the file says besides, where it came from one.
    """

    program: TorchProgram
    takes: Any
    gives: Any
    origin: Origin | None = None

    def __call__(self, params: Mapping[str, Any], constants: Mapping[str, Any], x: Any) -> Any:
        """f_θ(x)."""
        given = check_leaves(self.program, self.takes, x)
        return fill(self.gives, self.outputs(params, constants, given))

    def outputs(
        self, params: Any, constants: Any, given: list[Any], largest: float | int = np.inf
    ) -> list[Any]:
        """The arrays of f_θ(x) from those of x."""
        samples = given[0].shape[0]
        if any(spec.shape[0] == 1 for spec in self.program.inputs):
            return jax.vmap(
                lambda *sample: [
                    y[0]
                    for y in self.program(
                        params, constants, tuple(a[None] for a in sample), largest
                    )
                ]
            )(*given)
        outputs = self.program(params, constants, tuple(given), largest)
        for y in outputs:
            if np.shape(y)[:1] != (samples,):
                raise Untranslatable(
                    f"`module` maps {samples} samples to an output of shape {np.shape(y)}; the "
                    "first axis must count them."
                )
        return outputs

    def check(self, params: Any, constants: Any) -> None:
        """Go through the program once without computing: what it refuses is refused here, by
        name.
        """
        refuse_batch_statistics(self.program)
        with arithmetic():
            given = [
                jax.ShapeDtypeStruct(tuple(n or 2 for n in spec.shape), np.dtype(spec.dtype))
                for spec in self.program.inputs
            ]
            jax.eval_shape(lambda given: self.outputs(params, constants, given, _LARGEST), given)


def check_leaves(program: TorchProgram, takes: Any, x: Any) -> list[Any]:
    """The arrays of x in the program's order, each of the shape and kind it was made for."""
    found = list(leaves(takes, x))
    for path, leaf in found:
        if not hasattr(leaf, "dtype"):
            raise TypeError(
                f"`x{path}` is {indefinite(leaf)}; pass an array whose first axis counts the "
                "samples."
            )
    for spec, (path, leaf) in zip(program.inputs, found, strict=True):
        _check_shape(f"`x{path}`", leaf, spec)
        _check_kind(f"`x{path}`", leaf, spec)
    counts = {leaf.shape[0] for _, leaf in found}
    if len(counts) > 1:
        raise ValueError(
            f"`x` has arrays of {sorted(counts)} samples; their first axes must agree."
        )
    return [jnp.asarray(leaf) for _, leaf in found]


def _check_shape(name: str, leaf: Any, spec: Input) -> None:
    fits = len(leaf.shape) == len(spec.shape) and all(
        wanted in (None, found)
        for wanted, found in zip(spec.shape[1:], leaf.shape[1:], strict=True)
    )
    if not fits:
        wanted = ", ".join(["n", *("any" if n is None else str(n) for n in spec.shape[1:])])
        raise ValueError(
            f"{name} has shape {tuple(leaf.shape)}; the network takes ({wanted}), n the number of "
            "samples."
        )


def _check_kind(name: str, leaf: Any, spec: Input) -> None:
    floating = jnp.issubdtype(np.dtype(spec.dtype), jnp.floating)
    if jnp.issubdtype(dtype_of(leaf), jnp.complexfloating) or (
        not floating and dtype_of(leaf).kind not in "iub"
    ):
        raise TypeError(
            f"{name} has dtype {dtype_of(leaf)}; the network takes {spec.dtype}: cast it with "
            "`.astype`."
        )
