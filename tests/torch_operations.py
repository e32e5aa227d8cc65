"""Arguments on which the operations of the table are compared with ATen's own: entries, shapes,
sums.
"""

from collections.abc import Callable
from typing import Any

import torch


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64) + 0.5


def unit(*shape: int) -> torch.Tensor:
    return 1.8 * torch.rand(*shape, dtype=torch.float64) - 0.9


def moments(n: int) -> list[torch.Tensor]:
    """A mean and a variance, recorded earlier; nobody differentiates by them."""
    return [torch.nn.Buffer(real(n)), torch.nn.Buffer(positive(n))]


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) > 0.5


Case = tuple[tuple[Any, ...], dict[str, Any]]
Cases = list[tuple[str, Callable[[], Case]]]


def case(*args: Any, **kwargs: Any) -> Case:
    return args, kwargs


def same(names: str, *cases: Callable[[], Case]) -> Cases:
    return [(name, make) for name in names.split() for make in cases]


def unary(names: str, draw: Callable[..., torch.Tensor] = lambda *shape: 3 * real(*shape)) -> Cases:
    return same(" ".join(f"{name}.default" for name in names.split()), lambda: case(draw(4, 5)))


def binary(names: str, draw: Callable[..., torch.Tensor] = real, scalar: Any = 1.7) -> Cases:
    tensors = " ".join(f"{name}.Tensor" for name in names.split())
    scalars = " ".join(f"{name}.Scalar" for name in names.split())
    both = (lambda: case(draw(4, 5), draw(5)), lambda: case(draw(4, 1), draw(1, 5)))
    return same(tensors, *both) + same(scalars, lambda: case(draw(4, 5), scalar))


ELEMENTWISE: Cases = [
    *binary("add sub mul rsub eq ne lt le gt ge"),
    *binary("div remainder fmod", draw=positive),
    *binary(
        "bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__",
        draw=lambda *s: whole(9, *s),
        scalar=5,
    ),
    *same(
        "add.Tensor sub.Tensor",
        lambda: case(real(3), real(3), alpha=2.5),
        lambda: case(real(3), whole(4, 3)),
    ),
    *same(
        "div.Tensor_mode",
        lambda: case(real(4), positive(4), rounding_mode="floor"),
        lambda: case(real(4), positive(4), rounding_mode="trunc"),
    ),
    *same("div.Scalar_mode", lambda: case(whole(9, 4), 2, rounding_mode="floor")),
    *same("true_divide.Tensor", lambda: case(real(4), positive(4))),
    *same(
        "floor_divide.default",
        lambda: case(real(4), positive(4)),
        lambda: case(whole(9, 4), whole(3, 4) + 1),
    ),
    *same(
        "pow.Tensor_Scalar",
        lambda: case(positive(4), 2.5),
        lambda: case(real(4), 2),
        lambda: case(real(4), 3.0),
        lambda: case(positive(4), -0.5),
    ),
    *same("pow.Tensor_Tensor", lambda: case(positive(4), real(4))),
    *same("pow.Scalar", lambda: case(2.5, real(4))),
    *same(
        "maximum.default minimum.default max.other min.other fmax.default fmin.default "
        "atan2.default arctan2.default hypot.default copysign.Tensor",
        lambda: case(real(4, 3), real(3)),
    ),
    *same("copysign.Scalar", lambda: case(real(4), -1.0)),
    *same(
        "xlogy.Tensor special_xlogy.default special_xlog1py.default",
        lambda: case(real(4, 3), positive(3)),
    ),
    *same("xlogy.Scalar_Other special_xlog1py.other_scalar", lambda: case(real(4), 1.7)),
    *same("xlogy.Scalar_Self special_xlog1py.self_scalar", lambda: case(1.7, positive(4))),
    *same(
        "logical_and.default logical_or.default logical_xor.default",
        lambda: case(flags(5), flags(5)),
    ),
    *same("logical_not.default bitwise_not.default", lambda: case(flags(5))),
    *same("where.self", lambda: case(flags(4), real(4), real(3, 4))),
    *same("where.ScalarOther", lambda: case(flags(4), real(4), 2.0)),
    *same("where.ScalarSelf", lambda: case(flags(4), 2.0, real(4))),
    *same("where.Scalar", lambda: case(flags(4), 2.0, 1.0)),
    *same("masked_fill.Scalar", lambda: case(real(4, 3), flags(3), -2.0)),
    *same("masked_fill.Tensor", lambda: case(real(4, 3), flags(3), real(1)[0])),
    *same("fill.Scalar", lambda: case(real(4), 3.0)),
    *same("fill.Tensor", lambda: case(real(4), real(1)[0])),
    *same("zero.default", lambda: case(real(4))),
    *same("lerp.Scalar", lambda: case(real(4), real(4), 0.3)),
    *same("lerp.Tensor", lambda: case(real(4), real(4), unit(4))),
    *same(
        "addcmul.default addcdiv.default", lambda: case(real(4), real(4), positive(4), value=0.7)
    ),
    *unary(
        "abs absolute neg sign sgn exp exp2 expm1 square sin cos tan atan arctan sinh cosh tanh asinh erf "
        "special_erf erfc"
    ),
    *unary("special_erfc floor ceil trunc round isnan isinf isfinite nan_to_num"),
    *unary("log log1p log2 log10 sqrt rsqrt reciprocal", draw=positive),
    *unary("asin arcsin acos arccos atanh erfinv special_erfinv", draw=unit),
    *unary("special_ndtri", draw=lambda *s: 0.3 * positive(*s)),
    *unary("lgamma digamma special_digamma special_psi", draw=positive),
    *same("polygamma.default special_polygamma.default", lambda: case(2, positive(4))),
    *unary("i0 special_i0 special_i0e special_i1 special_i1e sinc special_sinc angle"),
    *unary("special_log_ndtr"),
    *unary("acosh", draw=lambda *s: 1 + positive(*s)),
    *same("round.decimals", lambda: case(real(4), decimals=2)),
    *same(
        "clamp.default clip.default",
        lambda: case(real(5), -0.5, 0.5),
        lambda: case(real(5), None, 0.2),
        lambda: case(real(5), 0.0),
    ),
    *same("clamp.Tensor clip.Tensor", lambda: case(real(5), unit(5) - 1, unit(5) + 1)),
    *same("clamp_min.default clamp_max.default", lambda: case(real(5), 0.1)),
    *same("clamp_min.Tensor clamp_max.Tensor", lambda: case(real(5), unit(5))),
    *unary("relu relu6 hardsigmoid hardswish selu silu mish sigmoid special_expit log_sigmoid"),
    *same("hardtanh.default", lambda: case(2 * real(9), -0.4, 1.2)),
    *same("threshold.default", lambda: case(real(5), 0.2, -3.0)),
    *same("leaky_relu.default", lambda: case(real(5)), lambda: case(real(5), 0.3)),
    *same("prelu.default", lambda: case(real(2, 3, 4), positive(3))),
    *same("_prelu_kernel.default", lambda: case(real(2, 3, 4), positive(3, 1))),
    *same("elu.default", lambda: case(real(5)), lambda: case(real(5), 0.7, 1.3, 0.9)),
    *same("celu.default", lambda: case(real(5), 0.7)),
    *same("gelu.default", lambda: case(real(5)), lambda: case(real(5), approximate="tanh")),
    *same("softplus.default", lambda: case(20 * real(9)), lambda: case(10 * real(9), 2.0, 5.0)),
    *same("softshrink.default hardshrink.default", lambda: case(real(9), 0.3)),
    *same("glu.default", lambda: case(real(4, 6), 1)),
    *same(
        "dropout.default alpha_dropout.default feature_dropout.default",
        lambda: case(real(4), 0.5, False),
    ),
]
SHAPE: Cases = [
    *same("view.default reshape.default _unsafe_view.default", lambda: case(real(2, 6), [3, -1])),
    *same("_reshape_copy.default", lambda: case(real(2, 6), [3, 4])),
    *same("view_as.default reshape_as.default", lambda: case(real(2, 6), real(4, 3))),
    *same(
        "flatten.using_ints",
        lambda: case(real(2, 3, 4), 1),
        lambda: case(real(2, 3, 4), 0, -2),
        lambda: case(real(1)[0]),
    ),
    *same("unflatten.int", lambda: case(real(2, 12), 1, [3, -1])),
    *same("permute.default", lambda: case(real(2, 3, 4), [2, 0, -2])),
    *same("transpose.int swapaxes.default swapdims.default", lambda: case(real(2, 3, 4), -1, 0)),
    *same("t.default numpy_T.default", lambda: case(real(2, 3))),
    *same("mT.default adjoint.default", lambda: case(real(2, 3, 4))),
    *same("movedim.int", lambda: case(real(2, 3, 4), 0, 2)),
    *same("movedim.intlist", lambda: case(real(2, 3, 4), [0, 1], [2, 0])),
    *same("unsqueeze.default", lambda: case(real(2, 3), -2)),
    *same("squeeze.dims", lambda: case(real(2, 1, 3, 1), [1, 3])),
    *same("expand.default", lambda: case(real(3, 1), [2, -1, 4])),
    *same("expand_as.default", lambda: case(real(3, 1), real(2, 3, 4))),
    *same("broadcast_to.default", lambda: case(real(3, 1), [2, 3, 4])),
    *same("broadcast_tensors.default", lambda: case([real(3, 1), real(4)])),
    *same(
        "cat.default concat.default",
        lambda: case([real(2, 3), real(2, 1)], 1),
        lambda: case([real(0), real(2)]),
    ),
    *same("stack.default", lambda: case([real(2), real(2)], -1)),
    *same("split.Tensor", lambda: case(real(2, 7), 3, 1)),
    *same("split.sizes split_with_sizes.default", lambda: case(real(2, 7), [3, 4], -1)),
    *same("chunk.default", lambda: case(real(7, 2), 3)),
    *same("unbind.int", lambda: case(real(2, 3), 1)),
    *same("select.int", lambda: case(real(2, 3), 1, -1)),
    *same(
        "slice.Tensor",
        lambda: case(real(5, 7), 1, -4, 2**63 - 1, 2),
        lambda: case(real(5)),
        lambda: case(real(5), 0, 4, 2),
    ),
    *same("narrow.default", lambda: case(real(5, 7), 1, -3, 2)),
    *same("select_scatter.default", lambda: case(real(3, 4), real(3), 1, 2)),
    *same(
        "slice_scatter.default",
        lambda: case(real(5, 4), real(2, 4), 0, 1, 5, 2),
        lambda: case(real(2), real(2)),
    ),
    *same(
        "index.Tensor",
        lambda: case(real(4, 5), [whole(4, 3), whole(5, 3)]),
        lambda: case(real(4, 5), [None, whole(5, 2, 2)]),
    ),
    *same("index_select.default", lambda: case(real(4, 5), 1, whole(5, 7))),
    *same("index_copy.default", lambda: case(real(4, 3), 0, torch.tensor([2, 0]), real(2, 3))),
    *same("gather.default", lambda: case(real(4, 5), 1, whole(5, 3, 2))),
    *same("flip.default", lambda: case(real(2, 3), [0, -1])),
    *same("roll.default", lambda: case(real(4, 5), [2, -1], [0, 1]), lambda: case(real(4, 5), [3])),
    *same("repeat.default tile.default", lambda: case(real(2, 3), [2, 1, 2])),
    *same("repeat_interleave.self_int", lambda: case(real(2, 3), 2, 1)),
    *same(
        "constant_pad_nd.default",
        lambda: case(real(2, 3), [1, 2, 0, 1], 0.5),
        lambda: case(real(5), [-1, 2]),
    ),
    *same(
        "pad.default",
        *(
            lambda mode=mode: case(real(2, 3, 5), [1, 2], mode)
            for mode in ("constant", "reflect", "replicate", "circular")
        ),
    ),
    *same("pixel_shuffle.default", lambda: case(real(2, 8, 3, 4), 2)),
    *same("pixel_unshuffle.default", lambda: case(real(2, 2, 6, 4), 2)),
    *same("tril.default triu.default", lambda: case(real(2, 4, 4)), lambda: case(real(4, 5), 1)),
    *same("diagonal.default", lambda: case(real(3, 4), 1), lambda: case(real(2, 3, 4), 0, 1, 2)),
    *same(
        "contiguous.default clone.default alias.default lift_fresh_copy.default lift_fresh.default",
        lambda: case(real(3)),
    ),
    *same(
        "to.dtype", lambda: case(real(3), torch.float32), lambda: case(whole(5, 3), torch.float64)
    ),
    *same("to.device", lambda: case(real(3), torch.device("cpu"), torch.float32)),
    *same("to.dtype_layout _to_copy.default", lambda: case(real(3), dtype=torch.float32)),
    *same("to.other type_as.default", lambda: case(real(3), torch.zeros(1))),
    *same("copy.default", lambda: case(real(2, 3), real(3))),
    *same("detach.default", lambda: case(real(3))),
    *same(
        "index_put.default",
        lambda: case(real(4, 3), [whole(4, 2)], real(2, 3)),
        lambda: case(real(4), [torch.tensor([1, 1])], real(2), True),
    ),
]
REDUCTION: Cases = [
    *same("sum.default mean.default prod.default", lambda: case(real(3, 4))),
    *same("sum.default", lambda: case(whole(9, 3), dtype=torch.float64), lambda: case(flags(5))),
    *same(
        "sum.dim_IntList mean.dim",
        lambda: case(real(3, 4, 2), [1, -1]),
        lambda: case(real(3, 4), [0], True),
        lambda: case(real(3), None),
    ),
    *same("prod.dim_int", lambda: case(real(3, 4), 1, True)),
    *same("amax.default amin.default", lambda: case(real(3, 4), [1]), lambda: case(real(3, 4))),
    *same("max.default min.default", lambda: case(real(3, 4))),
    *same("max.dim min.dim", lambda: case(real(3, 4), 1), lambda: case(real(3, 4), -2, True)),
    *same(
        "argmax.default argmin.default", lambda: case(real(3, 4)), lambda: case(real(3, 4), 1, True)
    ),
    *same("any.default all.default", lambda: case(flags(3, 4))),
    *same("any.dim all.dim", lambda: case(flags(3, 4), 1, True)),
    *same("any.dims all.dims", lambda: case(flags(3, 4), [0, 1])),
    *same("logsumexp.default", lambda: case(real(3, 4), [1])),
    *same(
        "var.correction std.correction var_mean.correction std_mean.correction",
        lambda: case(real(3, 4), [1], correction=0),
        lambda: case(real(3, 4), None, keepdim=True),
    ),
    *same(
        "var.dim std.dim var_mean.dim std_mean.dim",
        lambda: case(real(3, 4), [1], False),
        lambda: case(real(3, 4), [0], True, True),
    ),
    *same(
        "norm.ScalarOpt_dim",
        lambda: case(real(3, 4), 2, [1]),
        lambda: case(real(3, 4), 1, [0], True),
    ),
    *same(
        "linalg_vector_norm.default",
        lambda: case(real(3, 4)),
        lambda: case(real(3, 4), 3.0, [1], True),
        *(
            lambda order=order: case(real(3, 4), order, [1])
            for order in (0, 0.5, 1, 1.5, float("inf"), -float("inf"))
        ),
        lambda: case(real(2, 3, 4), 2, [1, 2]),
    ),
    *same("norm.ScalarOpt_dim_dtype", lambda: case(real(3, 4), 2, [1], False, dtype=torch.float64)),
    *same("norm.Scalar", lambda: case(real(3, 4), 3)),
    *same("dist.default", lambda: case(real(3, 4), real(3, 4))),
    *same(
        "_cdist_forward.default",
        lambda: case(real(2, 3, 4), real(2, 5, 4), 2.0, None),
        lambda: case(real(3, 4), real(5, 4), 1.0, None),
    ),
    *same("cdist.default", lambda: case(real(2, 3, 4), real(2, 5, 4))),
    *same("nansum.default", lambda: case(real(3, 4), [1])),
    *same("sort.stable", lambda: case(real(3, 4), stable=True)),
    *same("sort.default", lambda: case(real(3, 4)), lambda: case(real(3, 4), 0, True)),
    *same("topk.default", lambda: case(real(3, 6), 2), lambda: case(real(3, 6), 4, 1, False)),
    *same(
        "softmax.int log_softmax.int",
        lambda: case(3 * real(3, 4), -1),
        lambda: case(torch.randn(3, 4), 0, torch.float64),
    ),
    *same("_softmax.default _log_softmax.default", lambda: case(real(3, 4), 1, False)),
    *same("cumsum.default cumprod.default", lambda: case(real(3, 4), 1)),
]
