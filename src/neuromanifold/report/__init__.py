"""Draws results (figures, HTML); computes nothing."""

from neuromanifold.report.document import as_json, write_json, write_markdown, write_timeline
from neuromanifold.report.page import render, write
from neuromanifold.report.terminal import numbers, print_inspection

__all__ = [
    "as_json",
    "numbers",
    "print_inspection",
    "render",
    "write",
    "write_json",
    "write_markdown",
    "write_timeline",
]
