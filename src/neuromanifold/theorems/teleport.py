"""The statements of [teleport], in the order of the paper's rows."""

from neuromanifold.theorems.statement import Statement
from neuromanifold.theorems.teleport_alignment import ALIGNMENT
from neuromanifold.theorems.teleport_convex import CONVEX
from neuromanifold.theorems.teleport_descent import SPEED
from neuromanifold.theorems.teleport_extension import EXTENSION
from neuromanifold.theorems.teleport_figures import FIGURES
from neuromanifold.theorems.teleport_hessian import HESSIAN
from neuromanifold.theorems.teleport_limit import LIMIT
from neuromanifold.theorems.teleport_mean_value import G_1
from neuromanifold.theorems.teleport_nonlinear import NONLINEAR_LAWS
from neuromanifold.theorems.teleport_scaling import SCALINGS
from neuromanifold.theorems.teleport_symmetry import LAWS

STATEMENTS: tuple[Statement, ...] = (
    *SCALINGS,
    *LAWS,
    *NONLINEAR_LAWS,
    *LIMIT,
    *HESSIAN,
    *ALIGNMENT,
    *SPEED,
    *CONVEX,
    *EXTENSION,
    G_1,
    *FIGURES,
)
