"""invariant: every statement of the paper."""

from neuromanifold_papers.statement import collect

STATEMENTS = collect(__name__)
