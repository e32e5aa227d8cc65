"""`riemann`: *The Riemannian Geometry Associated to Gradient Flows of Linear Convolutional
Networks*, every statement executed.
"""

from neuromanifold_papers.riemann.statements import (
    algebra,
    cells,
    conserved,
    convergence,
    dense,
    examples,
    omitted,
    products,
    relu,
    running,
    singular,
    steps,
    strided,
    table,
    tensors,
    theorem13,
)
from neuromanifold_papers.statement import Statement

STATEMENTS: tuple[Statement, ...] = (
    *conserved.GROUP,
    products.IMAGE,
    products.INVERTIBLE,
    steps.CHAIN,
    *omitted.GROUP,
    *algebra.GROUP,
    *singular.GROUP,
    products.SINGULAR,
    *strided.GROUP,
    *convergence.GROUP,
    *steps.ZERO_FILTERS,
    *running.GROUP,
    *examples.GROUP,
    *dense.EXAMPLE_20,
    *tensors.GROUP,
    *theorem13.GROUP,
    *dense.THEOREM_14,
    products.POWERS,
    products.QUOTIENT,
    *table.GROUP,
    steps.FIBRES,
    cells.STUDY,
    *relu.GROUP,
)
