"""The statements of [teleport], in the order of the paper's rows."""

from neuromanifold_papers.statement import Statement
from neuromanifold_papers.teleport.statements.alignment import ALIGNMENT
from neuromanifold_papers.teleport.statements.bounded import A_6, EQ_18, EQ_23, EQ_33
from neuromanifold_papers.teleport.statements.convex import CONVEX
from neuromanifold_papers.teleport.statements.descent import SPEED
from neuromanifold_papers.teleport.statements.extension import EXTENSION
from neuromanifold_papers.teleport.statements.figures import FIGURES
from neuromanifold_papers.teleport.statements.hessian import HESSIAN
from neuromanifold_papers.teleport.statements.limit import LIMIT
from neuromanifold_papers.teleport.statements.mean_value import G_1
from neuromanifold_papers.teleport.statements.nonlinear import NONLINEAR_LAWS
from neuromanifold_papers.teleport.statements.scaling import SCALINGS
from neuromanifold_papers.teleport.statements.symmetry import LAWS
from neuromanifold_papers.teleport.statements.unbounded import LEMMA, THEOREM

STATEMENTS: tuple[Statement, ...] = (
    *SCALINGS,
    *LAWS,
    EQ_18,
    *NONLINEAR_LAWS,
    LEMMA,
    *LIMIT,
    THEOREM,
    *HESSIAN,
    EQ_23,
    A_6,
    EQ_33,
    *ALIGNMENT,
    *SPEED,
    *CONVEX,
    *EXTENSION,
    G_1,
    *FIGURES,
)
