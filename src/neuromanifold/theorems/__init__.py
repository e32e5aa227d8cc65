"""Every theorem, executed: one module per paper, each statement with its cases, its measurement, its control and its verdict."""

from neuromanifold.theorems.errata import errata_page, write_errata
from neuromanifold.theorems.evidence import Evidence, examine, kind, seen_to_fail
from neuromanifold.theorems.ledger import (
    PAPERS,
    expected,
    read_evidence,
    recorded_verdicts,
    select,
    statements,
    verify,
    write_evidence,
    write_verdicts,
)
from neuromanifold.theorems.statement import Check, Control, Statement
from neuromanifold.theorems.training import StudyCases, read_claims, reading

__all__ = [
    "PAPERS",
    "Check",
    "Control",
    "Evidence",
    "Statement",
    "StudyCases",
    "errata_page",
    "examine",
    "expected",
    "kind",
    "read_claims",
    "read_evidence",
    "reading",
    "recorded_verdicts",
    "seen_to_fail",
    "select",
    "statements",
    "verify",
    "write_errata",
    "write_evidence",
    "write_verdicts",
]
