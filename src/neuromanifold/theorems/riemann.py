"""`riemann`: *The Riemannian Geometry Associated to Gradient Flows of Linear Convolutional Networks*, every statement executed."""

from neuromanifold.theorems import (
    riemann_algebra,
    riemann_cells,
    riemann_conserved,
    riemann_convergence,
    riemann_dense,
    riemann_examples,
    riemann_relu,
    riemann_running,
    riemann_singular,
    riemann_strided,
    riemann_table,
    riemann_tensors,
    riemann_theorem13,
)
from neuromanifold.theorems.statement import Statement

STATEMENTS: tuple[Statement, ...] = (
    *riemann_conserved.GROUP,
    *riemann_algebra.GROUP,
    *riemann_singular.GROUP,
    *riemann_strided.GROUP,
    *riemann_convergence.GROUP,
    *riemann_running.GROUP,
    *riemann_examples.GROUP,
    *riemann_dense.EXAMPLE_20,
    *riemann_tensors.GROUP,
    *riemann_theorem13.GROUP,
    *riemann_dense.THEOREM_14,
    *riemann_table.GROUP,
    riemann_cells.STUDY,
    *riemann_relu.GROUP,
)
