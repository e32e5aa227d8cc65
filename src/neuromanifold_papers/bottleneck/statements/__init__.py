"""The statements of `bottleneck`, in the order of the theory: costs and ranks, corrections,
layers, narrow minima, examples, figures.
"""

from neuromanifold_papers.bottleneck.statements import (
    circle,
    cost,
    dynamics,
    example,
    figures,
    identity,
    interpolants,
    narrow,
    paths,
    ranks,
    second,
    setting,
    structure,
    thm3,
)
from neuromanifold_papers.statement import Statement

STATEMENTS: tuple[Statement, ...] = (
    setting.HOMOGENEOUS,
    *cost.STATEMENTS,
    *ranks.STATEMENTS,
    *circle.STATEMENTS,
    *thm3.STATEMENTS,
    *second.STATEMENTS,
    *identity.STATEMENTS,
    *structure.STATEMENTS,
    setting.HESSIAN,
    *narrow.STATEMENTS,
    *interpolants.STATEMENTS,
    *paths.STATEMENTS,
    *dynamics.STATEMENTS,
    *example.STATEMENTS,
    *figures.STATEMENTS,
)
