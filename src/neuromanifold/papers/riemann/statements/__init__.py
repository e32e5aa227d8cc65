"""`riemann`: *The Riemannian Geometry Associated to Gradient Flows of Linear Convolutional Networks*, every statement executed."""

from neuromanifold.papers.riemann.statements import (
    algebra,
    cells,
    conserved,
    convergence,
    dense,
    examples,
    relu,
    running,
    singular,
    strided,
    table,
    tensors,
    theorem13,
)
from neuromanifold.papers.statement import Statement

STATEMENTS: tuple[Statement, ...] = (
    *conserved.GROUP,
    *algebra.GROUP,
    *singular.GROUP,
    *strided.GROUP,
    *convergence.GROUP,
    *running.GROUP,
    *examples.GROUP,
    *dense.EXAMPLE_20,
    *tensors.GROUP,
    *theorem13.GROUP,
    *dense.THEOREM_14,
    *table.GROUP,
    cells.STUDY,
    *relu.GROUP,
)
