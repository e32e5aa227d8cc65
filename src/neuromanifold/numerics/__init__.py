"""Numbers one can trust: the float64 boundary, memory budget, ranks, exact linear algebra,
atomic files.
"""

from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.rank import Certificate, Rank
from neuromanifold.runtime.memory import blocks, memory_budget

__all__ = ["Certificate", "Rank", "arithmetic", "blocks", "memory_budget"]
