"""What the kernel of a graph is made of: for every use of a parameter its input and the
cotangents of its product.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.bends import Oracle
from neuromanifold.graph.graph import Graph
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.program import Program
from neuromanifold.graph.uses import Use, canonical_cotangent, canonical_input


class Factors(NamedTuple):
    """At one sample: a[b, t, k] and d[o, b, t, c] of each use, and the Jacobian (o, size) of each
    leaf that has none.

    `samples` is a zero, which counts the samples where there is nothing else.
    """

    inputs: tuple[Any, ...]
    cotangents: tuple[Any, ...]
    jacobians: tuple[Any, ...]
    samples: Any


def factors(
    graph: Graph,
    uses: Sequence[Use],
    direct: Sequence[int],
    params: Any,
    sample: Any,
    ask: Oracle | None = None,
) -> Factors:
    """One forward pass and one vector–Jacobian product for each output.

    Zeros are added to the products of all `uses`; the derivative by them is the cotangent. The
    leaves in `direct` (positions among the parameters) are differentiated by themselves.
    """
    program, leaves = graph.program, jax.tree.leaves(params)
    data = jax.tree.leaves(sample)
    wanted = list(dict.fromkeys(part.other for use in uses for part in use.products))
    products = list(dict.fromkeys(part.output for use in uses for part in use.products))

    def output(added: dict[int, Any], chosen: dict[int, Any]) -> tuple[Any, list[Any]]:
        inputs = [*(chosen.get(i, leaf) for i, leaf in enumerate(leaves)), *data]
        results = interpret(program, inputs, ask, added=added, wanted=wanted)
        values, captured = results[: len(program.outputs)], results[len(program.outputs) :]
        return jnp.concatenate([v.reshape(-1) for v in values]), captured

    zeros = {i: jnp.zeros(program.values[i].shape, program.values[i].dtype) for i in products}
    y, pullback, captured = jax.vjp(output, zeros, {i: leaves[i] for i in direct}, has_aux=True)
    by_product, by_leaf = jax.vmap(pullback)(jnp.eye(len(y), dtype=y.dtype))
    known = dict(zip(wanted, captured, strict=True))
    return Factors(
        tuple(_join([_input(program, part, known) for part in use.products], 1) for use in uses),
        tuple(
            _join([_cotangent(program, part, by_product, known) for part in use.products], 2)
            for use in uses
        ),
        tuple(by_leaf[i].reshape(len(y), -1) for i in direct),
        jnp.zeros((), y.dtype),
    )


def _input(program: Program, use: Use, known: Mapping[int, Any]) -> Any:
    if use.rows is not None:
        return jnp.asarray(use.rows[1], np.int32).reshape(1, -1, 1)
    return canonical_input(
        use, known[use.other], program.values[use.node.inputs[use.operand]].shape
    )


def _cotangent(
    program: Program, use: Use, by_product: Mapping[int, Any], known: Mapping[int, Any]
) -> Any:
    if use.rows is None:
        return canonical_cotangent(use, by_product[use.output])
    d = canonical_cotangent(use.rows[0], by_product[use.output])
    return jnp.einsum("obtr,btc->obrc", d, _input(program, use.rows[0], known))


def _join(parts: Sequence[Any], axis: int) -> Any:
    """Of one product its own, without a copy."""
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)
