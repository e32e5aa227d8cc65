"""The neural tangent kernel Θ = J₁J₂ᵀ, blocked over samples to a memory budget."""

from typing import Any

import numpy as np

from neuromanifold.graph.selection import by_leaf, select
from neuromanifold.models.arguments import Model, check_model, check_rows, output_size
from neuromanifold.numerics.memory import memory_budget
from neuromanifold.numerics.precision import boundary, is_traced, is_wide, product_precision, promote, widest
from neuromanifold.numerics.validation import check_param_types, sample_arrays
from neuromanifold.tangent.contraction import kernel_block
from neuromanifold.tangent.routes import plan
from neuromanifold.tangent.selfcheck import check_kernel
from neuromanifold.tangent.tiles import Tiles, assembled


def ntk(
    f: Model,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    trace: bool = False,
    diagonal: bool = False,
    wrt: Any = None,
    by_layer: bool = False,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> Any:
    """The empirical neural tangent kernel Θ[(i,a), (j,b)] = ⟨∇_θ f_a(x1_i), ∇_θ f_b(x2_j)⟩.

    Shape (n1·o, n2·o), sample-major; `trace=True` sums over equal outputs, (n1, n2); `diagonal=True` keeps them apart,
    (n1, n2, o). In the widest dtype passed, as the inputs came. Each parameter is followed through the traced network to its
    products, whose inputs and cotangents give its part of the kernel by the cheapest of several ways (`nm.tangent.kernel_plan` shows
    them): for a dense layer (a·a′ + 1)(d·d′), without a Jacobian. `wrt` picks the parameters that count;
    `by_layer=True` gives the part of each of them, a dict by name, whose sum is the kernel. Temporaries stay within
    `memory` bytes (default: see `memory_budget`; a device that runs out of memory all the same halves the blocks and warns).
    Several devices of a process, and several processes, share the samples. `check=True` compares with JVP∘VJP on random probes.
    `precision` is for float32 on accelerators: full, three passes ("tf32x3", "bf16x3": about 2e-5), "default".

    >>> nm.ntk(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).tolist()
    [[1.0, 3.0], [3.0, 9.0]]
    """
    kind = _kind(trace, diagonal)
    if by_layer:
        options: dict[str, Any] = {"trace": trace, "diagonal": diagonal, "memory": memory, "check": check}
        return by_leaf(lambda alone: ntk(f, params, x1, x2, wrt=alone, precision=precision, **options), params, wrt)
    budget = memory_budget(memory, device=True)
    check_model(f)
    check_param_types(params)
    x1 = sample_arrays(x1, "x")
    symmetric, x2 = x2 is None, None if x2 is None else sample_arrays(x2, "x2")
    wide, dtype = is_wide(), widest(params, x1, x2)
    with boundary(params, x1, x2, precision=product_precision(precision, dtype)) as leave:
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
        kernel = assembled(Tiles(made, params, x1, None if symmetric else x2, kind, budget, dtype))
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
