"""What a recorded shape or dtype decides, written into the program once."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from neuromanifold.models.adapters.torch.program import (
    Ref,
    Shape,
    TorchNode,
    TorchProgram,
    names_in,
)


def keep_needed(nodes: tuple[TorchNode, ...], outputs: tuple[Any, ...]) -> tuple[TorchNode, ...]:
    """The operations that the outputs depend on: a number that is drawn and then not looked at
    (layer drop in evaluation mode) makes no module random.
    """
    read, kept = {*names_in(outputs)}, []
    for node in reversed(nodes):
        if not read.isdisjoint(node.outputs):
            read.update(names_in((node.args, node.kwargs)))
            kept.append(node)
    return tuple(reversed(kept))


def settle(nodes: tuple[TorchNode, ...], shapes: Mapping[str, Shape]) -> tuple[TorchNode, ...]:
    """`squeeze` with the axes that had length one, `rms_norm` with its ε, both as when the graph
    was made.

    The sample axis then stays for a single sample too, and ε does not follow the run's dtype.
    """
    return tuple(_settle(node, shapes) for node in nodes)


def _settle(node: TorchNode, shapes: Mapping[str, Shape]) -> TorchNode:
    if node.target.startswith("aten.squeeze."):
        return _squeeze(node, shapes)
    if node.target == "aten.rms_norm.default" and node.dtypes[0] is not None:
        x, shape, weight, eps = (*node.args, None, None)[:4]
        eps = float(jnp.finfo(node.dtypes[0]).eps) if eps is None else eps
        return dataclasses.replace(
            node, args=(x, shape, node.kwargs.get("weight", weight), eps), kwargs={}
        )
    return node


def _squeeze(node: TorchNode, shapes: Mapping[str, Shape]) -> TorchNode:
    x, *given = node.args
    shape = shapes.get(x.name, ()) if isinstance(x, Ref) else ()
    chosen = (
        range(len(shape)) if not given else (given[0],) if isinstance(given[0], int) else given[0]
    )
    ones = tuple(d % len(shape) for d in chosen if shape[d] == 1) if shape else ()
    return dataclasses.replace(node, target="aten.squeeze.dims", args=(x, ones))


def statistics_read(program: TorchProgram) -> dict[str, str]:
    """The constants that batch normalisations read as their running means and variances."""
    norms = [node for node in program.nodes if "batch_norm" in node.target]
    read = {part.name for node in norms for part in node.args[3:5] if isinstance(part, Ref)}
    return {place: name for place, name in program.constants.items() if place in read}


def as_constants(program: TorchProgram, moved: Mapping[str, str]) -> TorchProgram:
    """The program with these parameters among its constants, under new names."""
    places = {place: moved[name] for place, name in program.parameters.items() if name in moved}
    rest = {place: name for place, name in program.parameters.items() if place not in places}
    return dataclasses.replace(program, parameters=rest, constants={**program.constants, **places})


def as_parameters(program: TorchProgram, moved: Mapping[str, str]) -> TorchProgram:
    """The program with these constants among its parameters, under these names."""
    rest = {place: name for place, name in program.constants.items() if place not in moved}
    return dataclasses.replace(program, parameters={**program.parameters, **moved}, constants=rest)
