"""The neural tangent kernel Θ = J₁J₂ᵀ, blocked over samples to a memory budget."""

from dataclasses import dataclass
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import Selection, by_leaf, select
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    check_arguments,
    check_model,
    check_rows,
    output_size,
)
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import (
    boundary,
    is_traced,
    is_wide,
    product_precision,
    promote,
    widest,
)
from neuromanifold.numerics.validation import (
    check_param_types,
    indefinite,
    leading_axis,
    sample_arrays,
)
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.tangent.kernel.contraction import kernel_block, self_traces
from neuromanifold.tangent.kernel.routes import plan
from neuromanifold.tangent.kernel.tiles import Tiles, assemble


@overload
def ntk(
    f: Model | tuple[Model, ...],
    params: Params,
    x1: Samples,
    x2: Samples | None = None,
    *,
    trace: bool = False,
    diagonal: bool = False,
    wrt: Any = None,
    by_layer: Literal[False] = False,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> Float[Any, "n1_o n2_o"] | Float[Any, "n1 n2 o"]: ...
@overload
def ntk(
    f: Model | tuple[Model, ...],
    params: Params,
    x1: Samples,
    x2: Samples | None = None,
    *,
    by_layer: Literal[True],
    trace: bool = False,
    diagonal: bool = False,
    wrt: Any = None,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> dict[str, Any]: ...
def ntk(
    f: Model | tuple[Model, ...],
    params: Params,
    x1: Samples,
    x2: Samples | None = None,
    *,
    trace: bool = False,
    diagonal: bool = False,
    wrt: Any = None,
    by_layer: bool = False,
    memory: int | str | None = None,
    check: bool = False,
    precision: str = "highest",
) -> Float[Any, "n1_o n2_o"] | Float[Any, "n1 n2 o"] | dict[str, Any]:
    """Return the empirical neural tangent kernel Θ[(i,a), (j,b)] = ⟨∇_θ f_a(x1_i), ∇_θ f_b(x2_j)⟩.

    Shape (n1·o, n2·o), sample-major; `trace=True` sums over equal outputs, (n1, n2);
    `diagonal=True` keeps them apart, (n1, n2, o). In the widest dtype passed, as the inputs came.
    Each parameter is followed through the traced network to its products, whose inputs and
    cotangents give its part of the kernel by the cheapest of several ways (`nm.tangent.kernel_plan`
    shows them): for a dense layer (a·a′ + 1)(d·d′), without a Jacobian. `wrt` picks the parameters
    that count; `by_layer=True` gives the part of each of them, a dict by name, whose sum is the
    kernel. Temporaries stay within `memory` bytes (default: see `memory_budget`; a device that runs
    out of memory all the same halves the blocks and warns). Several devices of a process, and
    several processes, share the samples. `check=True` compares with JVP∘VJP on random probes.
    `precision` is for float32 on accelerators: full, three passes ("tf32x3", "bf16x3": about 2e-5),
    "default".

    Several functions of the same parameters, such as a network and the residual of its differential
    equation, have one kernel: with tuples `f` and `x1` of equal length (and `x2`, if given) it has a
    block Θ_fg for every two of them, the rows of f before those of g.

    >>> nm.ntk(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).tolist()
    [[1.0, 3.0], [3.0, 9.0]]
    >>> line, slope = (lambda params, x: params * x), (lambda params, x: params * jnp.ones_like(x))
    >>> nm.ntk((line, slope), 2.0, (np.array([[1.0], [3.0]]), np.array([[5.0]]))).tolist()
    [[1.0, 3.0, 1.0], [3.0, 9.0, 3.0], [1.0, 3.0, 1.0]]
    """
    if isinstance(f, tuple):
        refused = {"trace": trace, "diagonal": diagonal}
        options = {
            "wrt": wrt,
            "by_layer": by_layer,
            "memory": memory,
            "check": check,
            "precision": precision,
        }
        return _joint_kernel(f, params, x1, x2, refused, options)
    kind = _kind(trace, diagonal)
    if by_layer:
        options: dict[str, Any] = {
            "trace": trace,
            "diagonal": diagonal,
            "memory": memory,
            "check": check,
        }
        return by_leaf(
            lambda alone: ntk(f, params, x1, x2, wrt=alone, precision=precision, **options),
            params,
            wrt,
        )
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
        kernel = assemble(Tiles(made, params, x1, None if symmetric else x2, kind, budget, dtype))
        if check:
            check_kernel(
                f, params, x1, x2, np.asarray(kernel), kind=kind, chosen=select(params, wrt)
            )
        return leave(kernel)


@dataclass(frozen=True)
class Joint:
    """Several functions of the same parameters as one model: a sample is a tuple of a sample of
    each, the outputs are theirs, one after the other.
    """

    models: tuple[Model, ...]

    def __call__(self, params: Any, x: tuple[Any, ...]) -> Any:
        outputs = [flat_outputs(f, params, a) for f, a in zip(self.models, x, strict=True)]
        return jnp.concatenate(outputs, axis=1)


def _joint_kernel(
    models: tuple[Model, ...],
    params: Any,
    x1: Any,
    x2: Any,
    refused: dict[str, bool],
    options: dict[str, Any],
) -> Any:
    """The kernel of several functions, from pairs of equally many samples: the shorter samples are
    repeated, and the rows of repetitions left out.
    """
    for name, given in refused.items():
        if given:
            raise ValueError(
                f"`{name}=True` sums over equal outputs, and {len(models)} functions have no equal "
                "outputs; leave it out."
            )
    sides = [_align(models, x, name) for x, name in ((x1, "x1"), (x2, "x2")) if x is not None]
    joint = Joint(models)
    whole = ntk(joint, params, *(pairs for pairs, _ in sides), **options)
    with boundary(params, x1):
        arrays = [promote((params, a), widest(params, a)) for a in sides[0][0]]
        sizes = [output_size(f, *each) for f, each in zip(models, arrays, strict=True)]
    rows, columns = (_theirs(sizes, counts) for _, counts in (sides[0], sides[-1]))
    return jax.tree.map(lambda kernel: kernel[rows][:, columns], whole)


def _align(models: tuple[Model, ...], x: Any, name: str) -> tuple[tuple[Any, ...], list[int]]:
    """Samples of each model, repeated to equal numbers, and how many there were."""
    if not isinstance(x, tuple) or len(x) != len(models):
        given = f"{len(x)} samples" if isinstance(x, tuple) else type(x).__name__
        raise ValueError(
            f"`{name}` is {given}, and `f` has {len(models)} functions; pass a tuple with the "
            "samples of each."
        )
    arrays = [sample_arrays(a, f"{name}[{k}]") for k, a in enumerate(x)]
    counts = [leading_axis(a) for a in arrays]
    most = max(counts)

    def repeated(a: Any) -> Any:
        return a[np.arange(most) % len(a)] if len(a) < most else a

    return tuple(jax.tree.map(repeated, a) for a in arrays), counts


def _theirs(sizes: list[int], counts: list[int]) -> np.ndarray:
    """The rows of the pairs' kernel that belong to each function in turn."""
    offsets, total = np.cumsum([0, *sizes[:-1]]), sum(sizes)
    return np.concatenate(
        [
            (np.arange(count)[:, None] * total + offset + np.arange(size)).ravel()
            for offset, size, count in zip(offsets, sizes, counts, strict=True)
        ]
    )


def balancing_weights(
    models: tuple[Model, ...], params: Params, samples: tuple[Any, ...]
) -> Float[Any, " terms"]:
    """Return weights that let every term of a loss fall at one rate: w_i = Tr Θ / Tr Θ_ii.

    The terms of a physics-informed loss, Σ w_i·½‖f_i(x_i) − y_i‖²/n_i, are functions f_i of the
    same parameters: the residual of the equation, the boundary values. Gradient flow moves f_i at
    the mean rate w_i Tr Θ_ii/n_i, Θ_ii its block of the joint kernel `ntk(models, …)`; these
    weights, those of Wang, Yu and Perdikaris (2022) for terms of n_i samples each, make the rates
    equal. Here Tr Θ_ii is the mean over samples. No kernel is formed.

    `models` are the functions f_i, `samples` their x_i.

    >>> line, steep = (lambda params, x: params * x), (lambda params, x: 3 * params * x)
    >>> nm.tangent.balancing_weights((line, steep), 1.0, (np.ones((2, 1)), np.ones((5, 1)))).tolist()
    [10.0, 1.1111111111111112]
    """
    if not isinstance(models, tuple) or not models:
        raise TypeError(f"`models` is {indefinite(models)}; pass a tuple of functions.")
    _align(models, samples, "samples")
    with boundary(params, samples) as leave:
        traces = []
        for f, sample in zip(models, samples, strict=True):
            at, x = check_arguments(f, params, sample, dtype=np.float64)
            made = plan(f, at, x, select(at, None), "trace")
            traces.append(jnp.mean(self_traces(made, at, x)))
        return leave(sum(traces) / jnp.stack(traces))


def _kind(trace: bool, diagonal: bool) -> str:
    if trace and diagonal:
        raise ValueError(
            "`trace` and `diagonal` are both True; the trace is the sum of the diagonal: pass one "
            "of them."
        )
    return "trace" if trace else "diagonal" if diagonal else "all"


def _refuse_decay(traced: bool, wide: bool, dtype: np.dtype) -> None:
    if traced and not wide and dtype == np.float64:
        raise TypeError(
            "float64 inside jit, vmap or grad decays to float32 while JAX's x64 flag is off; "
            "call jax.config.update('jax_enable_x64', True) first, or pass float32."
        )


_PROBES = 3
_SAFETY = 100.0


def check_kernel(
    f: Model, params: Any, x1: Any, x2: Any, kernel: np.ndarray, *, kind: str, chosen: Selection
) -> None:
    """Raise `ArithmeticError` when the kernel is not that of f."""
    rng = np.random.default_rng(0)
    shape = (leading_axis(x2), output_size(f, params, x2))
    tolerance = (
        _SAFETY * float(jnp.finfo(kernel.dtype).eps) * np.sqrt(chosen.size + kernel.shape[1])
    )
    for _ in range(_PROBES):
        v = rng.standard_normal(shape if kind == "all" else shape[:1]).astype(kernel.dtype)
        expected = _expect(f, params, x1, x2, v, shape[1], kind, chosen)
        found = (
            (kernel @ v.ravel()).reshape(expected.shape)
            if kind != "diagonal"
            else np.einsum("ijo,j->io", kernel, v)
        )
        scale = np.linalg.norm(kernel) * np.linalg.norm(v) / np.sqrt(kernel.shape[1])
        error = np.linalg.norm(found - expected) / max(scale, np.finfo(kernel.dtype).tiny)
        if not error <= tolerance:
            raise ArithmeticError(
                f"the kernel disagrees with JVP∘VJP by {error:.2g} (tolerance {tolerance:.2g}): a "
                "bug in `f` or here."
            )


def _expect(
    f: Model, params: Any, x1: Any, x2: Any, v: np.ndarray, width: int, kind: str, chosen: Selection
) -> np.ndarray:
    """Θv through f on the whole batch; for trace and diagonal, output by output."""
    if kind == "all":
        return np.asarray(_push_pull(f, params, x1, x2, jnp.asarray(v), chosen))
    columns = []
    for output in range(width):
        cotangent = np.zeros((len(v), width), v.dtype)
        cotangent[:, output] = v
        columns.append(
            np.asarray(_push_pull(f, params, x1, x2, jnp.asarray(cotangent), chosen))[:, output]
        )
    found = np.stack(columns, axis=1)
    return found.sum(axis=1) if kind == "trace" else found


@jax.jit(static_argnums=(0, 5))
def _push_pull(f: Model, params: Any, x1: Any, x2: Any, cotangent: Any, chosen: Selection) -> Any:
    mine, rebuild = chosen.split(params)
    y, pullback = jax.vjp(lambda p: flat_outputs(f, rebuild(p), x2), mine)
    (direction,) = pullback(cotangent.astype(y.dtype))
    return jax.jvp(lambda p: flat_outputs(f, rebuild(p), x1), (mine,), (direction,))[1]


def empirical_nngp(
    f: Model, params: Params, x1: Samples, x2: Samples | None = None
) -> Float[Any, "n1 n2"]:
    """Return the mean over the o outputs of f_a(x1_i) f_a(x2_j): one network's estimate of
    `nm.nngp`, off by a relative 1/√o and 1/√width.

    >>> nm.tangent.empirical_nngp(lambda params, x: params * x, 2.0, np.array([[1.0, 3.0]])).tolist()      # (2² + 6²)/2
    [[20.0]]
    """
    with boundary(params, x1, x2) as leave:
        params, x1, *more = check_arguments(f, params, x1, *([] if x2 is None else [x2]))
        left = flat_outputs(f, params, x1)
        right = flat_outputs(f, params, more[0]) if more else left
        return leave(jnp.matmul(left, right.T) / left.shape[1])
