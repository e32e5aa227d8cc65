"""Arguments on which the operations of the table are compared with ATen's own: products,
windows, norms, recurrences; and all of them.
"""

import torch

from torch_operations import (
    ELEMENTWISE,
    REDUCTION,
    SHAPE,
    Case,
    Cases,
    case,
    flags,
    moments,
    positive,
    real,
    same,
    whole,
)

LINEAR: Cases = [
    *same(
        "linear.default",
        lambda: case(real(2, 5, 3), real(4, 3), real(4)),
        lambda: case(real(3), real(4, 3)),
    ),
    *same("bilinear.default", lambda: case(real(2, 3), real(2, 4), real(5, 3, 4), real(5))),
    *same(
        "matmul.default",
        lambda: case(real(2, 1, 3, 4), real(5, 4, 2)),
        lambda: case(real(3), real(3, 2)),
        lambda: case(real(3), real(3)),
    ),
    *same("mm.default", lambda: case(real(2, 3), real(3, 4))),
    *same("bmm.default", lambda: case(real(2, 3, 4), real(2, 4, 5))),
    *same("mv.default", lambda: case(real(2, 3), real(3))),
    *same("dot.default", lambda: case(real(3), real(3))),
    *same(
        "addmm.default",
        lambda: case(real(4), real(2, 3), real(3, 4)),
        lambda: case(real(2, 4), real(2, 3), real(3, 4), beta=0.5, alpha=2.0),
    ),
    *same(
        "baddbmm.default",
        lambda: case(real(2, 3, 5), real(2, 3, 4), real(2, 4, 5), beta=0.5, alpha=2.0),
    ),
    *same("outer.default ger.default", lambda: case(real(3), real(4))),
    *same("einsum.default", lambda: case("bij,bjk->bik", [real(2, 3, 4), real(2, 4, 5)])),
    *same(
        "embedding.default",
        lambda: case(real(5, 3), whole(5, 2, 4)),
        lambda: case(real(5, 3), whole(5, 2, 9), 2),
    ),
    *same("one_hot.default", lambda: case(whole(4, 5), 4)),
    *same("conv1d.default", lambda: case(real(2, 4, 9), real(6, 2, 3), real(6), [2], [1], [2], 2)),
    *same(
        "conv2d.default",
        lambda: case(real(2, 3, 7, 8), real(4, 3, 3, 2), None, [1, 2], [1, 0]),
        lambda: case(real(3, 7, 7), real(4, 3, 3, 3)),
    ),
    *same("conv3d.default", lambda: case(real(2, 2, 4, 5, 6), real(3, 2, 2, 2, 2), real(3))),
    *same(
        "conv1d.padding",
        lambda: case(real(2, 3, 9), real(4, 3, 4), real(4), [1], "same"),
        lambda: case(real(2, 3, 9), real(4, 3, 4), None, [2], "valid"),
    ),
    *same(
        "conv2d.padding",
        lambda: case(real(2, 3, 6, 6), real(4, 3, 3, 2), real(4), [1, 1], "same", [2, 1]),
    ),
    *same(
        "conv3d.padding", lambda: case(real(1, 2, 4, 4, 4), real(2, 2, 3, 3, 3), None, [1], "same")
    ),
    *same(
        "conv_transpose1d.default",
        lambda: case(real(2, 4, 5), real(4, 3, 3), real(6), [2], [1], [1], 2, [2]),
    ),
    *same(
        "conv_transpose2d.input",
        lambda: case(real(2, 3, 4, 5), real(3, 2, 3, 3), real(2), [2, 1], [1, 0], [1, 0]),
    ),
    *same("conv_transpose3d.input", lambda: case(real(1, 2, 3, 3, 3), real(2, 2, 2, 2, 2))),
    *same(
        "convolution.default",
        lambda: case(real(2, 4, 9), real(6, 2, 3), real(6), [2], [1], [2], False, [0], 2),
        lambda: case(
            real(2, 3, 4, 5), real(3, 2, 3, 3), real(2), [2, 1], [1, 0], [1, 1], True, [1, 0], 1
        ),
    ),
    *same(
        "cosine_similarity.default",
        lambda: case(real(3, 4), real(3, 4)),
        lambda: case(real(3, 4), real(3, 4), 0, 1e-6),
    ),
    *same(
        "_weight_norm.default _weight_norm_interface.default",
        lambda: case(real(3, 4), positive(3, 1), 0),
    ),
]
POOLING: Cases = [
    *same("max_pool1d.default", lambda: case(real(2, 3, 9), [3], [2], [1])),
    *same(
        "max_pool2d.default",
        lambda: case(real(2, 3, 7, 8), [3, 2]),
        lambda: case(real(2, 3, 7, 8), [3, 3], [2, 2], [1, 1], [1, 1], True),
    ),
    *same(
        "max_pool2d.default", lambda: case(real(2, 3, 9, 8), [3, 2], [2, 1], [1, 0], [2, 3], True)
    ),
    *same("max_pool3d.default", lambda: case(real(1, 2, 4, 5, 6), [2, 2, 2])),
    *same(
        "avg_pool1d.default",
        lambda: case(real(2, 3, 9), [3], [2], [1], True),
        lambda: case(real(2, 3, 9), [3], [2], [1], False, False),
    ),
    *same(
        "avg_pool2d.default",
        lambda: case(real(2, 3, 7, 8), [3, 2]),
        lambda: case(real(2, 3, 7, 8), [3, 3], [2, 2], [1, 1], True, False),
        lambda: case(real(2, 3, 7, 8), [3, 3], [2, 2], [1, 1], True, True),
        lambda: case(real(2, 3, 7, 8), [2, 2], [2, 2], [0, 0], False, True, 3),
    ),
    *same("avg_pool3d.default", lambda: case(real(1, 2, 4, 5, 6), [2, 2, 2])),
    *same("adaptive_avg_pool1d.default", lambda: case(real(2, 3, 7), [3])),
    *same(
        "adaptive_avg_pool2d.default _adaptive_avg_pool2d.default",
        lambda: case(real(2, 3, 6, 7), [3, 4]),
        lambda: case(real(2, 3, 6, 7), [1, 1]),
    ),
    *same(
        "adaptive_avg_pool3d.default _adaptive_avg_pool3d.default",
        lambda: case(real(1, 2, 4, 5, 6), [2, 2, 3]),
    ),
    *same("adaptive_max_pool1d.default", lambda: case(real(2, 3, 8), [4])),
    *same(
        "adaptive_max_pool2d.default",
        lambda: case(real(2, 3, 6, 8), [3, 4]),
        lambda: case(real(2, 3, 7, 8), [3, 5]),
    ),
    *same("adaptive_max_pool3d.default", lambda: case(real(1, 2, 4, 4, 4), [2, 2, 1])),
    *same("max_pool2d_with_indices.default", lambda: case(real(2, 3, 7, 8), [3, 2])),
    *same("max_pool3d_with_indices.default", lambda: case(real(1, 2, 4, 5, 6), [2, 2, 2])),
    *same(
        "upsample_nearest1d.vec",
        lambda: case(real(2, 3, 4), [7], None),
        lambda: case(real(2, 3, 4), None, [2.0]),
    ),
    *same(
        "upsample_nearest2d.vec",
        lambda: case(real(2, 3, 4, 5), [8, 7], None),
        lambda: case(real(2, 3, 4, 5), None, [2.0, 3.0]),
        lambda: case(real(2, 3, 5, 6), None, [1.3, 0.6]),
    ),
    *same(
        "upsample_bilinear2d.vec",
        lambda: case(real(2, 3, 4, 5), [8, 7], False, None),
        lambda: case(real(2, 3, 4, 5), [3, 9], True, None),
        lambda: case(real(2, 3, 4, 5), None, False, [2.0, 2.0]),
        lambda: case(real(2, 3, 5, 6), None, False, [1.3, 0.6]),
    ),
    *same(
        "_upsample_bilinear2d_aa.default _upsample_bicubic2d_aa.default",
        lambda: case(real(2, 3, 9, 5), [4, 7], False),
        lambda: case(real(1, 1, 7, 8), [3, 5], True),
        lambda: case(real(1, 1, 5, 6), [3, 4], False, 0.7, 0.6),
    ),
    *same(
        "_upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec",
        lambda: case(real(1, 2, 9, 5), None, False, [0.4, 1.5]),
        lambda: case(real(1, 2, 6, 5), [3, 2], False, None),
    ),
]
NORMALISATION: Cases = [
    *same(
        "layer_norm.default",
        lambda: case(real(2, 3, 4), [3, 4], real(3, 4), real(3, 4), 1e-3),
        lambda: case(real(2, 4), [4]),
    ),
    *same("native_layer_norm.default", lambda: case(real(2, 3, 4), [4], real(4), real(4), 1e-3)),
    *same(
        "rms_norm.default",
        lambda: case(real(2, 3, 4), [4], real(4), 1e-3),
        lambda: case(real(2, 4), [4], None, 1e-6),
    ),
    *same(
        "batch_norm.default",
        lambda: case(real(2, 3, 4), real(3), real(3), *moments(3), False, 0.1, 1e-3, True),
    ),
    *same(
        "_native_batch_norm_legit_no_training.default",
        lambda: case(real(2, 3), None, None, *moments(3), 0.1, 1e-3),
    ),
    *same("group_norm.default", lambda: case(real(2, 6, 4), 3, real(6), real(6), 1e-3)),
    *same(
        "native_group_norm.default", lambda: case(real(2, 6, 4), real(6), real(6), 2, 6, 4, 3, 1e-3)
    ),
    *same(
        "instance_norm.default",
        lambda: case(real(2, 3, 5), real(3), real(3), None, None, True, 0.1, 1e-3, True),
    ),
    *same(
        "instance_norm.default",
        lambda: case(real(2, 3, 5), None, None, *moments(3), False, 0.1, 1e-3, True),
    ),
]
ATTENTION: Cases = [
    *same(
        "scaled_dot_product_attention.default",
        lambda: case(real(2, 3, 4, 5), real(2, 3, 6, 5), real(2, 3, 6, 7)),
        lambda: case(
            real(2, 3, 4, 5), real(2, 3, 4, 5), real(2, 3, 4, 5), None, 0.0, True, scale=0.3
        ),
        lambda: case(real(2, 3, 4, 5), real(2, 3, 6, 5), real(2, 3, 6, 5), flags(2, 1, 4, 6)),
        lambda: case(real(2, 4, 5), real(2, 6, 5), real(2, 6, 5), real(4, 6)),
        lambda: case(real(2, 4, 3, 5), real(2, 2, 6, 5), real(2, 2, 6, 5), enable_gqa=True),
        lambda: case(
            real(1, 2, 5), real(1, 3, 5), real(1, 3, 5), torch.tensor([[False] * 3, [True] * 3])
        ),
    ),
    *same(
        "_safe_softmax.default",
        lambda: case(
            real(3, 4).masked_fill(torch.tensor([[True], [False], [False]]), -torch.inf), -1
        ),
    ),
]


def recurrent(
    gates: int,
    states: int,
    *,
    layers: int = 1,
    both: bool = False,
    bias: bool = True,
    first: bool = True,
    proj: int = 0,
) -> Case:
    h, directions = 4, 1 + both
    out = proj or h
    weights = []
    for layer in range(layers):
        for _ in range(directions):
            fan_in = 3 if layer == 0 else out * directions
            weights += [real(gates * h, fan_in), real(gates * h, out)] + (
                [real(gates * h), real(gates * h)] if bias else []
            )
            weights += [real(proj, h)] if proj else []
    initial = [real(layers * directions, 2, out), real(layers * directions, 2, h)][:states]
    x = real(2, 5, 3) if first else real(5, 2, 3)
    return case(
        x, initial if states == 2 else initial[0], weights, bias, layers, 0.0, False, both, first
    )


RECURRENT: Cases = [
    *same(
        "lstm.input",
        lambda: recurrent(4, 2),
        lambda: recurrent(4, 2, layers=2, both=True, bias=False),
        lambda: recurrent(4, 2, proj=2),
    ),
    *same(
        "gru.input",
        lambda: recurrent(3, 1),
        lambda: recurrent(3, 1, layers=2, both=True, first=False),
    ),
    *same(
        "rnn_tanh.input rnn_relu.input",
        lambda: recurrent(1, 1),
        lambda: recurrent(1, 1, layers=2, bias=False),
    ),
]
CREATION: Cases = [
    *same("arange.default", lambda: case(5), lambda: case(2.5)),
    *same("arange.start", lambda: case(2, 7)),
    *same(
        "arange.start_step",
        lambda: case(1, 8, 2),
        lambda: case(0.0, 1.0, 0.25, dtype=torch.float64),
    ),
    *same("zeros.default ones.default", lambda: case([2, 3]), lambda: case([2], dtype=torch.int64)),
    *same("zeros_like.default ones_like.default", lambda: case(real(2, 3))),
    *same("new_zeros.default new_ones.default", lambda: case(real(2), [3, 1])),
    *same(
        "_new_zeros_with_same_feature_meta.default",
        lambda: case(real(4, 2), real(3, 1), self_num_batch_dims=1),
    ),
    *same("full.default", lambda: case([2, 3], 1.5), lambda: case([2], True)),
    *same("full_like.default", lambda: case(real(2, 3), -1.5)),
    *same("new_full.default", lambda: case(real(2), [3], 0.5)),
    *same("scalar_tensor.default", lambda: case(0.5, dtype=torch.float64)),
    *same("linspace.default", lambda: case(0.0, 1.0, 5, dtype=torch.float64)),
    *same("eye.default", lambda: case(3)),
    *same("eye.m", lambda: case(3, 4)),
    *same("sym_size.int", lambda: case(real(2, 3), 1)),
    *same("sym_numel.default", lambda: case(real(2, 3))),
]
SCATTERING: Cases = [
    *same(
        "scatter.src scatter_add.default",
        lambda: case(real(2, 4), 1, torch.tensor([[2, 0, 3], [1, 3, 0]]), real(2, 3)),
        lambda: case(real(4, 3), 0, torch.tensor([[2, 0, 3], [1, 3, 0]]), real(2, 3)),
    ),
    *same(
        "scatter_add.default",
        lambda: case(real(2, 4), -1, torch.tensor([[2, 2, 2], [1, 3, 1]]), real(2, 3)),
    ),
    *same("scatter.value", lambda: case(real(2, 4), 1, torch.tensor([[2, 0], [1, 3]]), 0.5)),
    *same(
        "scatter_reduce.two",
        *(
            lambda reduce=reduce, own=own: case(
                real(2, 4),
                1,
                torch.tensor([[2, 2, 0], [1, 3, 1]]),
                real(2, 3),
                reduce,
                include_self=own,
            )
            for reduce in ("sum", "mean", "amax", "amin")
            for own in (True, False)
        ),
    ),
    *same(
        "unfold.default", lambda: case(real(2, 7, 3), 1, 3, 2), lambda: case(real(2, 5), -1, 2, 1)
    ),
    *same(
        "cummax.default cummin.default",
        lambda: case(real(3, 6), 1),
        lambda: case(torch.tensor([1.0, 2.0, 2.0, 0.0]), 0),
    ),
    *same("logcumsumexp.default", lambda: case(real(3, 6), -1)),
    *same("kthvalue.default", lambda: case(real(3, 6), 2), lambda: case(real(3, 6), 3, 0, True)),
    *same("median.dim", lambda: case(real(3, 6), 1), lambda: case(real(3, 5), 1, True)),
    *same(
        "searchsorted.Tensor",
        lambda: case(torch.arange(4.0), torch.tensor([-1.0, 1.0, 1.5, 9.0]), right=True),
    ),
    *same(
        "searchsorted.Tensor",
        lambda: case(real(2, 3).sort().values, real(2, 4), right=True),
        lambda: case(
            -torch.arange(6.0).view(2, 3), real(2, 4), sorter=torch.tensor([[2, 1, 0]] * 2)
        ),
    ),
    *same(
        "diff.default",
        lambda: case(real(3, 5)),
        lambda: case(real(4, 2), 2, 0, prepend=real(1, 2), append=real(2, 2)),
    ),
    *same("bucketize.Tensor", lambda: case(torch.tensor([-1.0, 1.0, 1.5, 9.0]), torch.arange(4.0))),
    *same(
        "_embedding_bag.default",
        lambda: case(real(5, 3), whole(5, 6), torch.tensor([0, 3])),
        lambda: case(
            real(5, 3),
            torch.tensor([0, 1, 2, 2, 1, 4]),
            torch.tensor([0, 2, 2]),
            False,
            1,
            False,
            None,
            False,
            2,
        ),
    ),
    *same("_unsafe_index.Tensor", lambda: case(real(3, 4), [None, torch.tensor([2, 0])])),
    *same(
        "_unsafe_index_put.default",
        lambda: case(real(3, 4), [None, torch.tensor([2, 0])], real(3, 2), True),
    ),
    *same("unsafe_split.Tensor", lambda: case(real(3, 5), 2, 1)),
]


def complex_numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128)


SPECTRAL: Cases = [
    *same("complex.default polar.default", lambda: case(positive(3, 4), real(3, 4))),
    *same("view_as_complex.default", lambda: case(real(3, 4, 2))),
    *same("view_as_real.default real.default imag.default", lambda: case(complex_numbers(3, 4))),
    *same(
        "_fft_r2c.default",
        *(lambda n=n: case(real(3, 4, 5), [1, 2], n, bool(n % 2)) for n in range(3)),
    ),
    *same(
        "_fft_c2r.default",
        *(lambda n=n: case(complex_numbers(3, 4, 3), [1, 2], n, 4 + n % 2) for n in range(3)),
    ),
    *same(
        "_fft_c2c.default",
        *(lambda n=n: case(complex_numbers(3, 4, 5), [0, 2], n, bool(n % 2)) for n in range(3)),
    ),
    *same("linalg_matrix_exp.default", lambda: case(real(2, 3, 3))),
    *same(
        "_linalg_slogdet.default _linalg_det.default linalg_det.default",
        lambda: case(real(3, 3)),
        lambda: case(real(2, 4, 4)),
    ),
    *same("linalg_qr.default", lambda: case(real(5, 3)), lambda: case(real(2, 3, 3), "complete")),
]
CASES: Cases = [
    *ELEMENTWISE,
    *SCATTERING,
    *SPECTRAL,
    *SHAPE,
    *REDUCTION,
    *LINEAR,
    *POOLING,
    *NORMALISATION,
    *ATTENTION,
    *RECURRENT,
    *CREATION,
]
