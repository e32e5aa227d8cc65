"""Draws results (figures, HTML); computes nothing."""

from neuromanifold.report.document import write_json, write_markdown
from neuromanifold.report.page import render, write

__all__ = ["render", "write", "write_json", "write_markdown"]
