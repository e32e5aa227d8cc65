"""The neural tangent kernel Θ = J₁J₂ᵀ, blocked over samples to a memory budget."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import select
from neuromanifold.models.arguments import Model, check_model, check_rows, output_size
from neuromanifold.numerics.memory import blocks, memory_budget
from neuromanifold.numerics.precision import boundary, is_traced, is_wide, promote, widest
from neuromanifold.numerics.validation import check_param_types, explain_not_finite, leading_axis, sample_arrays
from neuromanifold.tangent.contraction import kernel_block
from neuromanifold.tangent.routes import Plan, plan
from neuromanifold.tangent.selfcheck import check_kernel


def ntk(
    f: Model,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    trace: bool = False,
    diagonal: bool = False,
    wrt: Any = None,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> Float[Any, "rows columns ..."]:
    """The empirical neural tangent kernel Θ[(i,a), (j,b)] = ⟨∇_θ f_a(x1_i), ∇_θ f_b(x2_j)⟩.

    Shape (n1·o, n2·o), sample-major; `trace=True` sums over equal outputs, (n1, n2); `diagonal=True` keeps them apart,
    (n1, n2, o). In the widest dtype passed, as the inputs came. Each parameter is followed through the traced network to its
    products, whose inputs and cotangents give its part of the kernel by the cheapest of several ways (`nm.tangent.plan` shows
    them): for a dense layer (a·a′ + 1)(d·d′), without a Jacobian. `wrt` picks the parameters that count. Temporaries stay
    within `memory` bytes (default: see `memory_budget`). `check=True` compares with JVP∘VJP on random probes.

    >>> nm.ntk(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).tolist()
    [[1.0, 3.0], [3.0, 9.0]]
    """
    kind = _kind(trace, diagonal)
    budget = memory_budget(memory)
    if precision not in ("default", "high", "highest"):
        raise ValueError(f"`precision` is {precision!r}; pass 'default', 'high' or 'highest'.")
    check_model(f)
    check_param_types(params)
    x1 = sample_arrays(x1, "x")
    symmetric, x2 = x2 is None, None if x2 is None else sample_arrays(x2, "x2")
    wide = is_wide()
    with boundary(params, x1, x2, precision=precision) as leave:
        dtype = widest(params, x1, x2)
        traced = is_traced((params, x1, x2))
        _refuse_decay(traced, wide, dtype)
        params, x1 = promote(params, dtype), promote(x1, dtype)
        x2 = x1 if symmetric else promote(x2, dtype)
        output_size(f, params, x1)
        output_size(f, params, x2, "x2")
        made = plan(f, params, x1, select(params, wrt), kind)
        if traced:
            return kernel_block(made, params, x1, x2, kind=kind, same=symmetric)[0]
        check_rows(f, params, x1)
        kernel = _blocked(made, params, x1, x2, symmetric, kind, budget, dtype)
        if check:
            check_kernel(f, params, x1, x2, np.asarray(kernel), kind=kind, chosen=select(params, wrt))
        return leave(kernel)


def _kind(trace: bool, diagonal: bool) -> str:
    if trace and diagonal:
        raise ValueError(
            "`trace` and `diagonal` are both True; the trace is the sum of the diagonal: pass one of them."
        )
    return "trace" if trace else "diagonal" if diagonal else "all"


def _refuse_decay(traced: bool, wide: bool, dtype: np.dtype) -> None:
    if traced and not wide and dtype == np.float64:
        raise TypeError(
            "float64 inside jit, vmap or grad decays to float32 while JAX's x64 flag is off; "
            "call jax.config.update('jax_enable_x64', True) first, or pass float32."
        )


class _Cut(NamedTuple):
    samples: slice
    rows: slice


def _blocked(
    made: Plan, params: Any, x1: Any, x2: Any, symmetric: bool, kind: str, budget: int, dtype: np.dtype
) -> Any:
    """All blocks, put together where they were computed; of a symmetric kernel half of them."""
    outputs = made.outputs if kind == "all" else 1
    largest = _largest_block(made, dtype.itemsize, budget)
    cuts1, cuts2 = (_cuts(leading_axis(x), largest, outputs) for x in (x1, x2))
    if len(cuts1) == len(cuts2) == 1:
        return _finite(kernel_block(made, params, x1, x2, kind=kind, same=symmetric), params, x1, x2)
    tail = (made.outputs,) if kind == "diagonal" else ()
    kernel = jnp.zeros((cuts1[-1].rows.stop, cuts2[-1].rows.stop, *tail), dtype)
    for index, cut1 in enumerate(cuts1):
        left = _taken(x1, cut1)
        for cut2 in cuts2[index:] if symmetric else cuts2:
            same = symmetric and cut1 == cut2
            right = left if same else _taken(x2, cut2)
            block = _finite(kernel_block(made, params, left, right, kind=kind, same=same), params, left, right)
            kernel = _placed(kernel, block, cut1.rows.start, cut2.rows.start)
            if symmetric and not same:
                kernel = _placed(kernel, block.swapaxes(0, 1), cut2.rows.start, cut1.rows.start)
    return kernel


def _taken(x: Any, cut: _Cut) -> Any:
    return jax.tree.map(lambda a: a[cut.samples], x)


@functools.partial(jax.jit, donate_argnums=0)
def _placed(kernel: Any, block: Any, row: Any, column: Any) -> Any:
    return jax.lax.dynamic_update_slice(kernel, block, (row, column, *(0,) * (kernel.ndim - 2)))


def _finite(block: tuple[Any, Any], params: Any, x1: Any, x2: Any) -> Any:
    kernel, finite = block
    if bool(finite):
        return kernel
    for tree, name in ((params, "params"), (x1, "x"), (x2, "x2")):
        explain_not_finite(tree, name)
    raise ArithmeticError("the kernel of `f` holds nan or inf at these parameters; check the model's values there.")


def _cuts(n: int, largest: int, outputs: int) -> list[_Cut]:
    return [_Cut(part, slice(part.start * outputs, part.stop * outputs)) for part in blocks(n, largest)]


def _largest_block(made: Plan, itemsize: int, budget: int) -> int:
    """The largest b with 2·b·(per sample) + b²·(per pair) numbers within the budget."""
    linear, quadratic = 2.0 * made.per_sample * itemsize, made.per_pair * itemsize
    return max(1, int((math.sqrt(linear**2 + 4 * quadratic * budget) - linear) / (2 * quadratic)))
