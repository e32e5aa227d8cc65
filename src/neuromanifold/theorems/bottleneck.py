"""The statements of `bottleneck`, in the order of the theory: costs and ranks, corrections, layers, narrow minima, examples, figures."""

from neuromanifold.theorems import (
    bottleneck_cost,
    bottleneck_dynamics,
    bottleneck_example,
    bottleneck_figures,
    bottleneck_identity,
    bottleneck_interpolants,
    bottleneck_narrow,
    bottleneck_ranks,
    bottleneck_second,
    bottleneck_structure,
    bottleneck_thm3,
)
from neuromanifold.theorems.statement import Statement

STATEMENTS: tuple[Statement, ...] = (
    *bottleneck_cost.STATEMENTS,
    *bottleneck_ranks.STATEMENTS,
    *bottleneck_thm3.STATEMENTS,
    *bottleneck_second.STATEMENTS,
    *bottleneck_identity.STATEMENTS,
    *bottleneck_structure.STATEMENTS,
    *bottleneck_narrow.STATEMENTS,
    *bottleneck_interpolants.STATEMENTS,
    *bottleneck_dynamics.STATEMENTS,
    *bottleneck_example.STATEMENTS,
    *bottleneck_figures.STATEMENTS,
)
