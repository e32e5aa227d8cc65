"""One timed execution of a job."""

from typing import NamedTuple


class Repetition(NamedTuple):
    """Seconds per unit of work, and the result reduced to a number that both sides must agree
    on.
    """

    seconds: float
    value: float
