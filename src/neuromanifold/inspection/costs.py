"""About what the sections of an inspection cost, in seconds of one core and in bytes, known before anything is computed."""

import jax
import numpy as np

from neuromanifold.graph.footprint import FIRST_BITS, footprint
from neuromanifold.inspection.subject import Subject, exact_bytes
from neuromanifold.models.described import filters, perceptron

DENSE_KERNEL = 4096  # rows of a kernel whose eigenvalues are all computed
LANCZOS_COUNT = 64  # eigenvalues of a larger one
_LANCZOS_PRODUCTS = 150
_FLOP, PRODUCT, ENTRY = 4e-10, 2e-10, 8e-9
"""Seconds on one core: an operation of a float64 network, one in a matrix product of residues, an entry of residues."""
_COMPILE, _COMPILE_NODE = 0.15, 0.004
"""Seconds to compile a program, and for each operation of the network in it."""


def compiling(s: Subject, programs: int) -> float:
    """Seconds to compile that many programs, each about as long as the network."""
    return programs * (_COMPILE + _COMPILE_NODE * len(s.graph.program.nodes))


def passes(s: Subject, count: int) -> float:
    """Seconds of that many forward passes over the sample."""
    return count * s.samples * s.operations * _FLOP


def cubes(s: Subject) -> float:
    """Seconds of some singular value decompositions of every weight matrix."""
    sides = zip(s.perceptron[0].widths, s.perceptron[0].widths[1:], strict=False)
    return 40 * _FLOP * sum(a * b * min(a, b) for a, b in sides)


def exact_seconds(s: Subject) -> float:
    """Seconds of the exact rank, by the cheaper of its two ways."""
    m = min(s.rows, s.columns)
    dense = s.rows * s.columns * (ENTRY + m * PRODUCT)
    operations, entries = s.sketch_costs
    sketched = operations * PRODUCT + entries * ENTRY + s.rows * m * (ENTRY + m * PRODUCT)
    return min(dense, sketched)


def deciding_bytes(s: Subject) -> int:
    """Bytes of deciding the bends at a single sample; further samples are taken as far as there is room."""
    return footprint(s.graph).bytes(bits=FIRST_BITS) if s.exactly and s.graph.units else 0


def exact_bytes_of(s: Subject) -> int:
    """Bytes that the exact rank keeps, or that the bends behind it take."""
    return max(deciding_bytes(s), exact_bytes(s.rows, [np.shape(leaf) for leaf in jax.tree.leaves(s.params)]))


def growth_seconds(s: Subject) -> float:
    """Seconds of the ranks on the first samples, beyond those of the rank."""
    return s.rows * s.columns * (ENTRY + s.columns * PRODUCT) if s.rows > s.columns else 0.0


def float64_seconds(s: Subject) -> float:
    """Seconds of the singular values, of the Jacobian or of its sketch."""
    m = min(s.rows, s.columns)
    if 3 * 8 * s.rows * s.columns <= s.budget:
        return compiling(s, 2) + 4 * s.rows * s.columns * m * _FLOP
    return compiling(s, 2) + passes(s, 3 * (m + 10)) + 4 * s.rows * m * m * _FLOP


def float64_bytes(s: Subject) -> int:
    """Bytes of the Jacobian and its decomposition, or of its sketch where the Jacobian is too large."""
    dense, sketch = (24 * s.rows * side for side in (s.columns, min(s.rows, s.columns)))
    return dense if dense <= s.budget else sketch


def account_seconds(s: Subject) -> float:
    """Seconds of the account: about five eliminations of D independent rows, and a dozen Jacobians at 256 inputs."""
    return s.columns**3 * 5 * PRODUCT + 12 * 256 * s.outputs * s.columns * 10 * ENTRY


def dense_kernel(s: Subject) -> bool:
    """Whether the kernel is small enough for all its eigenvalues."""
    return s.rows <= DENSE_KERNEL and _kernel_bytes(s) <= s.budget


def _kernel_bytes(s: Subject) -> int:
    """Bytes of the kernel with its eigenvalues, the parameters in float64, and the factors of a single sample."""
    return 8 * int(3 * s.rows**2 + 2 * s.columns + 2 * s.kernel.per_sample + s.kernel.per_pair)


def spectrum_bytes(s: Subject) -> int:
    """Bytes of the whole kernel, or of Lanczos: parameters and their directions, what a pass keeps, and the basis twice."""
    if dense_kernel(s):
        return _kernel_bytes(s)
    return 8 * (4 * s.columns + 2 * s.samples * s.activations + 4 * (LANCZOS_COUNT + 16) * s.rows)


def spectrum_seconds(s: Subject) -> float:
    """Seconds of the kernel's eigenvalues."""
    if not dense_kernel(s):
        return compiling(s, 4) + passes(s, 3 * _LANCZOS_PRODUCTS)
    return compiling(s, 4) + passes(s, 2 * s.outputs) + s.rows**2 * (2 * s.rows + s.samples) * _FLOP


def scalings_seconds(s: Subject) -> float:
    """Seconds of some products with J at few inputs for every axis of every parameter."""
    if perceptron(s.f) or filters(s.f):
        return 0.0
    axes = sum(len(np.shape(leaf)) for leaf in jax.tree.leaves(s.params))
    return compiling(s, 2) + 24 * axes * s.operations * _FLOP + s.columns * 2e-7


def scalings_bytes(s: Subject) -> int:
    """Bytes of six copies of the parameters in float64 (two points, each with a direction, and the device's), and of the places
    of the largest one."""
    largest = max(np.size(leaf) for leaf in jax.tree.leaves(s.params))
    return 0 if perceptron(s.f) or filters(s.f) else 8 * (6 * s.columns + 6 * largest)


def curvature_seconds(s: Subject) -> float:
    """Seconds of a Lanczos iteration with products by a second derivative."""
    return compiling(s, 4) + passes(s, 6 * _LANCZOS_PRODUCTS // 2)
