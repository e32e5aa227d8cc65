"""Draws results (figures, HTML); computes nothing."""

from neuromanifold.report.page import render, write

__all__ = ["render", "write"]
