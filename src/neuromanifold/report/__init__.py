"""Draws results (figures, HTML); computes nothing."""

from neuromanifold.report.ledger import cells, render_ledger, summary_lines, write_ledger
from neuromanifold.report.page import render, write

__all__ = ["cells", "render", "render_ledger", "summary_lines", "write", "write_ledger"]
