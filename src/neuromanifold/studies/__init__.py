"""One module per paper: experiment → labelled results → figures."""

from neuromanifold.studies.output import Claim

__all__ = ["Claim"]
