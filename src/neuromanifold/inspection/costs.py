"""About what the sections of an inspection cost, in seconds of one core and in bytes, known
before anything is computed.
"""

import jax
import numpy as np

from neuromanifold.graph.footprint import FIRST_BITS, footprint, live_entries
from neuromanifold.graph.uses import Use, leaves
from neuromanifold.inspection.subject import Subject, exact_bytes
from neuromanifold.models.model_kind import filters, perceptron
from neuromanifold.numerics.validation import leading_axis
from neuromanifold.symmetry.reduction.narrowing import PROBES
from neuromanifold.tangent.kernel.routes import count_kept_numbers
from neuromanifold.tangent.kernel.spectrum import trace_bytes

DENSE_KERNEL = 4096  # rows of a kernel whose eigenvalues are all computed
LANCZOS_COUNT = 64  # eigenvalues of a larger one
_LANCZOS_PRODUCTS = 150
RANKED = 64  # samples whose representations are looked at along the network
_INPUTS = 2  # at which scalings of channels are tried
_TRIED = 5  # evaluations of f on the sample and on wide inputs that a reduction takes
_FLOP, _WINDOWED, PRODUCT, ENTRY = 5e-11, 4e-10, 2e-10, 8e-9
"""Seconds on one core: an operation of a float64 network, one in a convolution, one in a product
of residues, an entry of residues.
"""
_DECIDED, _DECIDED_WINDOWED = 3e-10, 1e-8
"""Seconds of an operation in balls of float64, in matrix products and in convolutions."""
_ACCOUNTED = 2e-3
"""Seconds of a parameter in the account: Jacobians of residues at inputs of regions beyond the
sample's.
"""
_STRUCTURED = 2e-7
"""Seconds of a parameter in the symmetries by structure, a GPT of 30 million."""
_FACTORED = 3e-10
"""Seconds of an operation in the decomposition of a matrix."""
_HELD = 4e-8
"""Seconds to write an entry of a Jacobian a few times."""
_COMPILE, _COMPILE_NODE = 0.15, 0.004
"""Seconds to compile a program, and for each operation of the network in it."""


def duration(seconds: float) -> str:
    """Say a number of seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.0f} minutes"


def compiling(s: Subject, programs: int) -> float:
    """Seconds to compile that many programs, each about as long as the network."""
    return programs * (_COMPILE + _COMPILE_NODE * len(s.graph.program.nodes))


def passes(s: Subject, count: int) -> float:
    """Seconds of that many forward passes over the sample."""
    return count * s.samples * (s.operations * _FLOP + s.convolving * (_WINDOWED - _FLOP))


def lanczos_seconds(s: Subject) -> float:
    """Seconds of the products of a Lanczos iteration, once they are compiled."""
    return passes(s, 3 * _LANCZOS_PRODUCTS)


def deciding_seconds(s: Subject) -> float:
    """Seconds of deciding every bend once, where balls of float64 suffice."""
    return 0.05 + s.samples * (
        s.operations * _DECIDED + s.convolving * (_DECIDED_WINDOWED - _DECIDED)
    )


def units_seconds(s: Subject) -> float:
    """Seconds of a pass over the samples that were given and not chosen."""
    if leading_axis(s.given) == s.samples:
        return 0.0
    return compiling(s, 2) + passes(s, 2) / s.samples * leading_axis(s.given)


def blocks_seconds(s: Subject) -> float:
    """Seconds of the Jacobian and the decompositions of its blocks, or of a few products."""
    m = min(s.rows, s.columns)
    pulls = passes(s, 3) * max(1.0, 16 / s.samples)
    return compiling(s, 2) + pulls + min(s.rows * s.columns, 2**22) * m * _FACTORED


def blocks_bytes(s: Subject) -> int:
    """Bytes of the parameters, one gradient and its sums in float64, and of what a pass at one
    sample keeps.
    """
    return 8 * (3 * s.columns + count_kept_numbers(s.graph))


def path_seconds(s: Subject) -> float:
    """Seconds of following which parameters an open path runs through."""
    if not s.exactly:
        return compiling(s, 2) + passes(s, 3) * max(1.0, 16 / s.samples)
    return 0.05 + s.samples * s.columns * ENTRY / 4


def path_bytes(s: Subject) -> int:
    """Bytes of deciding the bends, or of one gradient at a time."""
    return deciding_bytes(s) if s.exactly else blocks_bytes(s)


def bottleneck_seconds(s: Subject) -> float:
    """Seconds of xarray's import, the decompositions of every weight matrix, and the Jacobian in
    the inputs.
    """
    sides = zip(s.perceptron[0].widths, s.perceptron[0].widths[1:], strict=False)
    cubes = sum(a * b * min(a, b) for a, b in sides)
    return 0.6 + 2 * _FACTORED * cubes + passes(s, s.outputs)


def ranks_seconds(s: Subject) -> float:
    """Seconds of the decompositions of every weight matrix and of the representations' triangles,
    of forward passes, of one vector–Jacobian product for each of at most 64 outputs at four samples,
    and of compiling each block.
    """
    cubes = sum(u.batch * u.outer * u.inner * min(u.outer, u.inner) for u in _uses(s))
    n = min(s.samples, RANKED)
    pulled = 4 * _count_pulled_outputs(s) / s.samples
    triangles = sum(rows * c * min(rows, c) for rows, c in _representations(s))
    return (
        compiling(s, 4) + _FACTORED * (cubes + triangles) + passes(s, 1) * (n / s.samples + pulled)
    )


def ranks_bytes(s: Subject) -> int:
    """Bytes of the parameters in float64, of the representations' triangles, and of the values of a
    pass at one sample with the cotangents that are alive at once.
    """
    live = live_entries(s.graph)
    triangles = sum(min(rows, c) * c for rows, c in _representations(s))
    return 8 * int(1.25 * s.columns + triangles + s.activations + _count_pulled_outputs(s) * live)


def _representations(s: Subject) -> list[tuple[int, int]]:
    """Rows and columns of what each product with a parameter gives."""
    n = min(s.samples, RANKED)
    return [(n * u.all_positions, u.batch * u.outer) for u in _uses(s)]


def _uses(s: Subject) -> list[Use]:
    return [u for leaf in leaves(s.graph.program, len(s.graph.parameters)) for u in leaf.uses]


def _count_pulled_outputs(s: Subject) -> int:
    """How many combinations of the outputs are followed back through the network."""
    return s.outputs if s.outputs <= 64 else 16


def reduction_seconds(s: Subject) -> float:
    """Seconds of rewriting the layers of a perceptron, or of reading all channels in one pass and of
    evaluating f a few times on the sample and on wide inputs.
    """
    if perceptron(s.f):
        return 0.15 + passes(s, 15)
    evaluations = passes(s, 1) * (1 + _probes(s) / s.samples) * _TRIED
    return 1.0 + compiling(s, 4) + evaluations


def reduction_bytes(s: Subject) -> int:
    """Bytes of deciding the bends; of other networks, of the parameters before and after, of the
    outputs on the sample and on wide inputs, and of a few samples' values.
    """
    if perceptron(s.f):
        return deciding_bytes(s)
    kept = (leading_axis(s.given) + _probes(s)) * s.outputs
    values = min(2**28, 8 * live_entries(s.graph) * s.samples)
    return max(deciding_bytes(s), 8 * (2 * s.columns + kept) + 2 * values)


def _probes(s: Subject) -> int:
    """How many wide inputs a reduction takes: fewer of a larger network."""
    return min(PROBES, max(8, int(4e10 / s.operations)))


def exact_seconds(s: Subject) -> float:
    """Seconds of the exact rank where the last layer can prove it, else of `whole_rank_seconds`."""
    whole = whole_rank_seconds(s)
    if s.rows > s.columns or s.head_rows < s.rows:
        return whole
    forward = s.samples * (s.operations / 2 * PRODUCT + s.activations * ENTRY)
    return min(whole, 0.1 + forward + s.rows**2 * (ENTRY + s.rows * PRODUCT))


def whole_rank_seconds(s: Subject) -> float:
    """Seconds of the exact rank by the columns of all parameters, by the cheaper of two ways."""
    m = min(s.rows, s.columns)
    dense = s.rows * s.columns * (ENTRY + m * PRODUCT)
    operations, entries = s.sketch_costs
    sketched = operations * PRODUCT + entries * ENTRY + s.rows * m * (ENTRY + m * PRODUCT)
    return 0.1 + min(dense, sketched)


def deciding_bytes(s: Subject) -> int:
    """Bytes of deciding the bends at a single sample; further samples are taken as far as there
    is room.
    """
    return footprint(s.graph).bytes(bits=FIRST_BITS) if s.exactly and s.graph.units else 0


def exact_bytes_of(s: Subject) -> int:
    """Bytes that the exact rank keeps, or that the bends behind it take."""
    return max(
        deciding_bytes(s),
        exact_bytes(s.rows, [np.shape(leaf) for leaf in jax.tree.leaves(s.params)]),
    )


def growth_seconds(s: Subject) -> float:
    """Seconds of the ranks on the first samples, beyond those of the rank."""
    return s.rows * s.columns * (ENTRY + s.columns * PRODUCT) if s.rows > s.columns else 0.0


def float64_seconds(s: Subject) -> float:
    """Seconds of the singular values, of the Jacobian or of its sketch."""
    m, compiled = min(s.rows, s.columns), 0.8 + compiling(s, 2)
    if 3 * 8 * s.rows * s.columns <= s.budget:
        return compiled + s.rows * s.columns * (_HELD + m * _FACTORED)
    return compiled + passes(s, 3 * (m + 10)) + s.rows * m * m * _FACTORED


def float32_seconds(s: Subject) -> float:
    """Seconds of the same in float32."""
    return 0.3 + compiling(s, 1) + s.rows * s.columns * min(s.rows, s.columns) * _FACTORED / 2


def float64_bytes(s: Subject) -> int:
    """Bytes of four Jacobians while it is decomposed, or of its sketch where three are too
    large.
    """
    dense, sketch = (24 * s.rows * side for side in (s.columns, min(s.rows, s.columns)))
    return dense * 4 // 3 if dense <= s.budget else sketch


def account_seconds(s: Subject) -> float:
    """Seconds of the account: eliminations of D independent rows, and Jacobians of residues at
    new inputs.
    """
    return 0.1 + s.columns * _ACCOUNTED + s.columns**3 * 3 * PRODUCT


def symmetries_seconds(s: Subject) -> float:
    """Seconds of the symmetries by structure: f and its gradient at two samples, some ten elements
    drawn and tried, and ranks of parts of the parameters.
    """
    return 2.0 + compiling(s, 4) + passes(s, 20) / s.samples + s.columns * _STRUCTURED


def symmetries_bytes(s: Subject) -> int:
    """Bytes of the parameters in float64, of the gradient, of an element's parameters, and of the
    values at two samples.
    """
    return 8 * int(3.2 * s.columns + 4 * live_entries(s.graph))


def dense_kernel(s: Subject) -> bool:
    """Whether the kernel is small enough for all its eigenvalues."""
    return s.rows <= DENSE_KERNEL and _kernel_bytes(s) <= s.budget


def _kernel_bytes(s: Subject) -> int:
    """Bytes of the kernel with its eigenvalues, the parameters in float64, a pass at a single
    sample and the factors of two.
    """
    plan = s.kernel
    factors = 2 * plan.passes + 4 * (plan.held + plan.formed)
    return 8 * int(3 * s.rows**2 + 1.25 * s.columns + factors + plan.per_pair)


def spectrum_bytes(s: Subject) -> int:
    """Bytes of the whole kernel, or of Lanczos: parameters and their directions, what a pass
    keeps, and the basis twice; or of as many samples' parts of the trace as the budget takes.
    """
    if dense_kernel(s):
        return _kernel_bytes(s)
    basis = 4 * (LANCZOS_COUNT + 16) * s.rows
    one = trace_bytes(s.kernel)
    return max(
        8 * (4 * s.columns + 2 * s.samples * s.activations + basis),
        one * min(s.samples, s.budget // one),
    )


def spectrum_seconds(s: Subject) -> float:
    """Seconds of the kernel's eigenvalues."""
    if not dense_kernel(s):
        traced = passes(s, 2 * s.outputs) if trace_bytes(s.kernel) <= s.budget else 0.0
        return 1.2 + compiling(s, 4) + lanczos_seconds(s) + traced
    compiled = compiling(s, 2 if perceptron(s.f) else 6)
    return compiled + passes(s, 4 * s.outputs) + s.rows**3 * _FACTORED


def scalings_seconds(s: Subject) -> float:
    """Seconds of some products with Jᵀ at few inputs, and of their sums over the axes of every
    parameter.
    """
    if perceptron(s.f) or filters(s.f):
        return 0.05 + s.columns * 2e-7
    return compiling(s, 2) + passes(s, 2 * _INPUTS) / s.samples + s.columns * 6e-8


def scalings_bytes(s: Subject) -> int:
    """Bytes of three copies of the parameters in float64, and of the values at two samples."""
    if perceptron(s.f) or filters(s.f):
        return 0
    return 8 * (3 * s.columns + 2 * live_entries(s.graph))


def curvature_seconds(s: Subject) -> float:
    """Seconds of a Lanczos iteration with products by a second derivative."""
    return 4.5 + compiling(s, 4) + lanczos_seconds(s)
