"""Every operation of the table against ATen's own: values, dtypes, gradients, and which results
are views.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from neuromanifold.models.adapters.torch.aliasing import VIEWS
from neuromanifold.models.adapters.torch.operations import OPERATIONS, Refusal
from neuromanifold.numerics.precision import arithmetic
from torch_layers import CASES

IDS = [f"{name}-{index}" for index, (name, _) in enumerate(CASES)]
# Arithmetic on sizes and the functions that refuse are tested below, `squeeze` by the axes that the
# recorded shapes name.
# Rewritten before they are computed, or tested as modules (test_torch_modules.py).
ELSEWHERE = {
    f"aten.{name}"
    for name in [
        "squeeze.default",
        "squeeze.dim",
        "histc.default",
        "rrelu.default",
        "grid_sampler_2d.default",
        "diagonal_scatter.default",
        "linalg_inv_ex.default",
        "linalg_inv.default",
        "linalg_solve.default",
        "_linalg_solve_ex.default",
        "linalg_solve_triangular.default",
        "linalg_cholesky_ex.default",
        "linalg_cholesky.default",
        "cholesky_solve.default",
        "linalg_pinv.atol_rtol_tensor",
        "_linalg_svd.default",
        "_linalg_eigh.default",
        "_native_batch_norm_legit.no_stats",
        "empty.memory_format",
        "empty_like.default",
        "empty_permuted.default",
        "new_empty.default",
        "_grouped_mm.default",
    ]
}
# PyTorch differentiates the first two not at all, the next with 1/6 and 1/α in float32, and its
# trigamma function is good to 1e-9.
WITHOUT_GRADIENT = {
    "floor_divide.default",
    "copy.default",
    "hardsigmoid.default",
    "celu.default",
    "digamma.default",
    "special_digamma.default",
    "special_psi.default",
}
REFUSED = {
    "aten.native_dropout.default": (
        (np.ones(3), 0.5, True),
        r"dropout in training mode\); call `module\.eval",
    ),
    "aten.dropout.default": ((np.ones(3), 0.5, True), "dropout in training mode"),
    "aten._native_batch_norm_legit.default": ((), "changes its running statistics"),
    "aten._native_batch_norm_legit_functional.default": ((), "changes its running statistics"),
    "aten.repeat_interleave.self_Tensor": (
        (np.ones(3), np.ones(3, int)),
        "counts that are themselves data",
    ),
    "aten.index.Tensor": ((np.ones(3), [np.ones(3, bool)]), "picks entries by a mask"),
    "aten.index_put.default": (
        (np.ones(3), [np.ones(3, bool)], np.ones(3)),
        "writes entries picked by a mask",
    ),
    "aten.embedding.default": (
        (np.ones((3, 2)), np.ones(3, int), -1, True),
        "scales gradients by how often",
    ),
    "aten.one_hot.default": ((np.ones(3, int),), "reads the number of classes off the values"),
    "aten.adaptive_max_pool1d.default": ((np.ones((1, 1, 9_001)), [9_000]), "too large a matrix"),
    "aten.scatter_reduce.two": (
        (np.ones(3), 0, np.zeros(3, int), np.ones(3), "prod"),
        "reduces by 'prod'; use 'sum'",
    ),
    "aten._embedding_bag.default": (
        (np.ones((3, 2)), np.ones(3, int), np.zeros(1, int), False, 2),
        "largest entries of bags",
    ),
    "aten.scaled_dot_product_attention.default": (
        (*[np.ones((1, 2, 2))] * 3, None, 0.1),
        "dropout in training mode",
    ),
    "aten.lstm.input": (
        (np.ones((1, 1, 1)), None, [], True, 1, 0.5, True, False, True),
        "dropout in training mode",
    ),
    "aten.unbind.int": ((np.ones((20_000, 1)),), "too many"),
    "aten.split.Tensor": ((np.ones(20_000), 1), "too many"),
    "aten.adaptive_avg_pool1d.default": ((np.ones((1, 1, 9_001)), [9_000]), "too large a matrix"),
    "_operator.mul": (("ab", 10**9), "something else than the lengths of axes"),
    "_operator.add": ((2**63, 1), "something else than the lengths of axes"),
    "aten.item.default": ((np.ones(()),), "turns a value of the data into a Python number"),
    "higher_order.cond": ((), "decides by the values of the data"),
    "aten.randn.default": (([3],), "draws random numbers"),
}


def to_jax(value: Any) -> Any:
    if torch.is_tensor(value):
        return jnp.asarray(value.detach().numpy())
    if isinstance(value, torch.dtype):
        return np.dtype(str(value).removeprefix("torch."))
    return [to_jax(part) for part in value] if isinstance(value, (list, tuple)) else value


def tensors(value: Any) -> list[torch.Tensor]:
    if torch.is_tensor(value):
        return [value]
    return [t for part in value for t in tensors(part)] if isinstance(value, (list, tuple)) else []


def differentiated(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and not isinstance(tensor, torch.nn.Buffer)


def arrays(value: Any) -> list[Any]:
    return (
        [a for a in jax.tree.leaves(value) if a is not None]
        if isinstance(value, (list, tuple))
        else [value]
    )


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_an_operation_computes_what_atens_does(name: str, make: Any):
    torch.manual_seed(0)
    args, kwargs = make()
    given = [t.requires_grad_() for t in tensors(args) if differentiated(t)]
    packet, overload = name.split(".")
    expected = getattr(getattr(torch.ops.aten, packet), overload)(*args, **kwargs)
    flat = tensors(expected) or [torch.as_tensor(expected)]
    with arithmetic():
        found = arrays(
            OPERATIONS[f"aten.{name}"](*to_jax(args), **{k: to_jax(v) for k, v in kwargs.items()})
        )
        for y, e in zip(found, flat, strict=False):
            y = jnp.asarray(y, np.dtype(str(e.dtype).removeprefix("torch.")))
            assert y.shape == tuple(e.shape)
            np.testing.assert_allclose(y, e.detach().numpy(), rtol=1e-12, atol=1e-13)
        check_gradient(name, args, kwargs, given)
    shares = {t.untyped_storage().data_ptr() for t in tensors(args)} & {
        t.untyped_storage().data_ptr() for t in tensors(expected)
    }
    assert not shares or f"aten.{name}" in VIEWS


def differentiable(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """(ATen's operation, the table's): both take the differentiated arguments and give a list of
    the outputs that PyTorch differentiates.
    """
    packet, overload = name.split(".")
    given = [t for t in tensors(args) if differentiated(t)]
    outputs: list[int] = []

    def replaced(value: Any, left: Any, fixed: Any) -> Any:
        if torch.is_tensor(value):
            return next(left) if differentiated(value) else fixed(value)
        if isinstance(value, (list, tuple)):
            return [replaced(part, left, fixed) for part in value]
        return fixed(value)

    def theirs(*values: torch.Tensor) -> list[torch.Tensor]:
        y = getattr(getattr(torch.ops.aten, packet), overload)(
            *replaced(args, iter(values), lambda value: value), **kwargs
        )
        flat = tensors(y)
        outputs[:] = [i for i, part in enumerate(flat) if part.requires_grad]
        return [flat[i] for i in outputs]

    def ours(*values: Any) -> list[Any]:
        y = OPERATIONS[f"aten.{name}"](
            *replaced(args, iter(values), to_jax), **{k: to_jax(v) for k, v in kwargs.items()}
        )
        flat = arrays(y)
        return [flat[i] for i in outputs if i < len(flat)]

    return (theirs if given else None), ours


def check_gradient(name: str, args: Any, kwargs: Any, given: list[torch.Tensor]) -> None:
    """vᵀJ and Jᵀ's other route, ⟨v, J u⟩: where PyTorch's derivative is a number, ours is it."""
    theirs, ours = differentiable(name, args, kwargs)
    expected = theirs(*given) if theirs and name not in WITHOUT_GRADIENT else []
    if not expected or any(t.is_complex() for t in (*tensors(args), *expected)):
        # gradients of real functions through complex numbers are compared in
        # `test_torch_modules.py`
        return
    values = [to_jax(t) for t in given]
    found, pull = jax.vjp(ours, *values)
    weights = [torch.randint(1, 4, y.shape).to(y) for y in expected[: len(found)]]
    slopes = torch.autograd.grad(expected[: len(found)], given, weights, allow_unused=True)
    wanted = [
        np.zeros(t.shape) if s is None else s.numpy(force=True)
        for t, s in zip(given, slopes, strict=True)
    ]
    gradient = pull([jnp.asarray(to_jax(w), y.dtype) for w, y in zip(weights, found, strict=True)])
    for g, w in zip(gradient, wanted, strict=True):
        defined, rtol = np.isfinite(w), 1e-11 if w.dtype == np.float64 else 1e-6
        size = np.abs(w[defined]).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(g)[defined], w[defined], rtol=rtol, atol=rtol * size)
    if all(np.isfinite(w).all() for w in wanted):
        change = [jnp.ones_like(t) for t in values]
        _, forwards = jax.jvp(ours, values, change)
        paired = sum(jnp.sum(to_jax(w) * t) for w, t in zip(weights, forwards, strict=True))
        size, rtol = (
            sum(np.abs(w).sum() for w in wanted),
            max(np.finfo(w.dtype).eps for w in wanted),
        )
        assert abs(paired - sum(w.sum() for w in wanted)) <= 1e5 * rtol * (size + 1)


def at_kinks(args: Any) -> Any:
    """The arguments with tensors of few different numbers, among them every bound that is
    passed: zeros, ties and bounds are met many times.
    """
    bounds = [float(a) for a in args if isinstance(a, float | int) and abs(a) < 100]
    chosen = torch.tensor([-3, -1, -0.5, 0, 0, 0.5, 1, 1, 2, 3, 6, *bounds], dtype=torch.float64)

    def changed(value: Any) -> Any:
        if torch.is_tensor(value) and differentiated(value):
            return chosen[torch.randint(len(chosen), value.shape)].to(value)
        return [changed(part) for part in value] if isinstance(value, (list, tuple)) else value

    return tuple(map(changed, args))


# Which of equal entries the first two take, PyTorch does not promise; the determinant of a
# singular matrix it differentiates by an inverse.
NO_PROMISE = {"topk.default", "kthvalue.default", "_linalg_det.default", "linalg_det.default"}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_derivatives_at_kinks_are_atens(name: str, make: Any):
    args, kwargs = make()
    if name in NO_PROMISE or not any(differentiated(t) for t in tensors(args)):
        return
    with arithmetic():
        for draw in range(2):
            torch.manual_seed(draw)
            met = at_kinks(args)
            check_gradient(
                name, met, kwargs, [t.requires_grad_() for t in tensors(met) if differentiated(t)]
            )


@pytest.mark.parametrize(
    "name, made, args",
    [
        ("empty.memory_format", torch.empty, ([2, 3],)),
        ("empty_permuted.default", torch.empty_permuted, ([2, 3], [1, 0])),
        ("empty_like.default", torch.empty_like, (torch.ones(2, 3),)),
        ("new_empty.default", torch.Tensor.new_empty, (torch.ones(1), [2, 3])),
    ],
)
def test_what_nobody_has_written_is_zero(name: str, made: Any, args: Any):
    """ATen says the shape, and leaves the values open; the recorded program says the dtype."""
    found = OPERATIONS[f"aten.{name}"](*(to_jax(a) for a in args))
    assert found.shape == tuple(made(*args).shape)
    assert not np.any(found)


def test_grouped_products_are_products_group_by_group():
    rng = np.random.default_rng(0)
    x, weights, ends = rng.normal(size=(7, 3)), rng.normal(size=(3, 3, 2)), [2, 2, 7]
    with arithmetic():
        found = OPERATIONS["aten._grouped_mm.default"](*map(jnp.asarray, (x, weights, ends)))
    expected = np.vstack([x[:2] @ weights[0], x[2:2] @ weights[1], x[2:] @ weights[2]])
    assert np.allclose(found, expected, rtol=0, atol=1e-14)
    assert not np.allclose(found, x @ weights[0])
    with pytest.raises(Refusal, match=r"use torch\.matmul"):
        OPERATIONS["aten._grouped_mm.default"](jnp.ones((2, 3)), jnp.ones((3, 2)), None)


def test_every_operation_of_the_table_is_tested():
    tested = {f"aten.{name}" for name, _ in CASES} | set(REFUSED) | ELSEWHERE
    aten = {name for name in OPERATIONS if name.startswith("aten.")}
    refusing = {
        name
        for name in aten
        if OPERATIONS[name] in {OPERATIONS["aten.item.default"], OPERATIONS["aten.randn.default"]}
    }
    silent = {
        name for name in aten if OPERATIONS[name] is OPERATIONS["aten._assert_scalar.default"]
    }
    assert aten - tested - refusing - silent == set()
    assert tested - set(OPERATIONS) == set()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_operation_refuses_what_it_cannot_do(name: str):
    args, text = REFUSED[name]
    with arithmetic(), pytest.raises(Refusal, match=text):
        OPERATIONS[name](*(jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args))
