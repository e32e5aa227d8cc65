"""The neural tangent kernel Θ = J₁J₂ᵀ, blocked over samples to a memory budget."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from neuromanifold.models.function import output_shape
from neuromanifold.numerics.memory import blocks, memory_budget
from neuromanifold.numerics.precision import arithmetic, is_traced, widest
from neuromanifold.tangent.arguments import Model, checked
from neuromanifold.tangent.blocks import Strategy, choose_strategy
from neuromanifold.tangent.selfcheck import check_kernel, check_rows


def ntk(
    f: Model,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    trace: bool = False,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> Float[Any, "rows columns"]:
    """The empirical neural tangent kernel Θ[(i,a), (j,b)] = ⟨∇_θ f_a(x1_i), ∇_θ f_b(x2_j)⟩.

    Shape (n1·o, n2·o), sample-major; with `trace=True` summed over equal outputs, (n1, n2). In the widest dtype passed;
    a NumPy array (a tracer under `jit` and `vmap`). For an MLP the layer structure gives
    Θ = Σ_l (A_l A_lᵀ + 1) ∘ (D_l D_lᵀ) without a Jacobian; any other function takes Jacobian contraction or
    NTK–vector products, whichever needs fewer operations. Temporaries stay within `memory` bytes (default: see
    `memory_budget`). `check=True` compares with JVP∘VJP on random probes and raises on disagreement.

    >>> nm.ntk(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).tolist()
    [[1.0, 3.0], [3.0, 9.0]]
    """
    budget = memory_budget(memory)
    if precision not in ("default", "high", "highest"):
        raise ValueError(f"`precision` is {precision!r}; pass 'default', 'high' or 'highest'.")
    with arithmetic(precision):
        params, x1, *rest = checked(f, params, x1, *([] if x2 is None else [x2]))
        symmetric, x2 = x2 is None, rest[0] if rest else x1
        strategy = choose_strategy(f, params, x1, trace=trace)
        if is_traced((params, x1, x2)):
            return strategy.kernel(params, strategy.left(params, x1), strategy.right(params, x2), symmetric)
        if check:
            check_rows(f, params, x1)
        kernel = _blocked(f, strategy, params, x1, x2, symmetric, trace, budget)
        if check:
            check_kernel(f, params, x1, x2, kernel, trace=trace)
    return kernel


class _Cut(NamedTuple):
    samples: slice
    rows: slice


def _blocked(f, strategy: Strategy, params, x1, x2, symmetric, trace, budget) -> np.ndarray:
    outputs = 1 if trace else math.prod(output_shape(f, params, x1))
    largest = _largest_block(strategy, outputs, widest(params).itemsize, budget)
    cuts1, cuts2 = (_cuts(x.shape[0], largest, outputs) for x in (x1, x2))
    kernel = np.empty((x1.shape[0] * outputs, x2.shape[0] * outputs), widest(params))
    for index, cut1 in enumerate(cuts1):
        left = strategy.left(params, x1[cut1.samples])
        for cut2 in cuts2[index:] if symmetric else cuts2:
            on_diagonal = symmetric and cut1 == cut2
            shared = on_diagonal and strategy.left is strategy.right
            right = left if shared else strategy.right(params, x2[cut2.samples])
            block = np.asarray(strategy.kernel(params, left, right, False))
            if not np.isfinite(block).all():
                raise ArithmeticError(
                    "the kernel of `f` holds nan or inf at these parameters; check the model's values there."
                )
            if on_diagonal:
                _write_symmetric(kernel[cut1.rows, cut1.rows], block)
                continue
            kernel[cut1.rows, cut2.rows] = block
            if symmetric:
                kernel[cut2.rows, cut1.rows] = block.T
    return kernel


def _write_symmetric(target: np.ndarray, block: np.ndarray) -> None:
    """(B + Bᵀ)/2: products on either side of the diagonal may be summed in another order."""
    np.add(block, block.T, out=target)
    target *= 0.5


def _cuts(n: int, largest: int, outputs: int) -> list[_Cut]:
    return [_Cut(part, slice(part.start * outputs, part.stop * outputs)) for part in blocks(n, largest)]


def _largest_block(strategy: Strategy, outputs: int, itemsize: int, budget: int) -> int:
    """The largest b with 2·b·(bytes per sample) + 4·(b·o)²·itemsize ≤ budget: two sides' factors and the block's temporaries."""
    linear, quadratic = 2.0 * strategy.bytes_per_sample, 4.0 * itemsize * outputs**2
    return max(1, int((math.sqrt(linear**2 + 4 * quadratic * budget) - linear) / (2 * quadratic)))
