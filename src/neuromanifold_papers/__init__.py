"""One folder per paper: its study and figures, its statements executed, their verdicts, its
recorded summary.
"""

from neuromanifold_papers.check import (
    Check,
    Drop,
    Interval,
    at_least,
    at_most,
    equal,
    inside,
    outside,
)
from neuromanifold_papers.errata import errata_page, write_errata
from neuromanifold_papers.evidence import KINDS, Dropped, Evidence, kind
from neuromanifold_papers.examination import examine, seen_to_fail, thinned
from neuromanifold_papers.index import Coverage, Entry, coverage, entries, flaws, paper_text
from neuromanifold_papers.ledger import (
    PAPERS,
    default_workers,
    expected,
    merge,
    read_evidence,
    recorded_verdicts,
    select,
    source_folder,
    statements,
    verify,
    write_evidence,
    write_verdicts,
)
from neuromanifold_papers.recorded import StudyCases, read_claims, reading
from neuromanifold_papers.statement import (
    NO_PROOF,
    SEVERITIES,
    Control,
    Statement,
    control,
    statement,
)

__all__ = [
    "KINDS",
    "NO_PROOF",
    "PAPERS",
    "SEVERITIES",
    "Check",
    "Control",
    "Coverage",
    "Drop",
    "Dropped",
    "Entry",
    "Evidence",
    "Interval",
    "Statement",
    "StudyCases",
    "at_least",
    "at_most",
    "control",
    "coverage",
    "default_workers",
    "entries",
    "equal",
    "errata_page",
    "examine",
    "expected",
    "flaws",
    "inside",
    "kind",
    "merge",
    "outside",
    "paper_text",
    "read_claims",
    "read_evidence",
    "reading",
    "recorded_verdicts",
    "seen_to_fail",
    "select",
    "source_folder",
    "statement",
    "statements",
    "thinned",
    "verify",
    "write_errata",
    "write_evidence",
    "write_verdicts",
]
