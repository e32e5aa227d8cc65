"""Fair comparisons: warm, interleaved, medians, compile time apart, and the two results held
against each other.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from benchmarks.peers.turn import once, turn
from benchmarks.repetition import Repetition
from benchmarks.row import Row
from benchmarks.worker import Absent, Worker

REPEATS = 5
REST = 0.5
"""Seconds between two turns: giving back the 2.4 GB of one contestant's Jacobian would slow the
next one for about 0.3 s.
"""


@dataclass(frozen=True)
class Routine:
    """A function of this process; `summary` reduces its result to a number, outside the clock.

    One call that holds several `units` of work is reported per unit. Entering it as a context warms
    it up.
    """

    label: str
    function: Callable[[], Any]
    summary: Callable[[Any], float]
    units: int = 1

    def __enter__(self) -> "Routine":
        self.repeat()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def repeat(self) -> Repetition:
        seconds, result = turn(self._call)
        return Repetition(seconds / self.units, self.summary(result))

    def first(self) -> float:
        """Seconds of one call, its compilation included when it is the first."""
        return once(self._call)[0] / self.units

    def _call(self) -> Any:
        return jax.block_until_ready(self.function())


def interleave(contestants: list[Routine | Worker], repeats: int) -> list[list[Repetition]]:
    """Each contestant's repetitions, taken in turns, so that a change of the machine's load
    meets them all.
    """
    rounds = [[_rested(contestant) for contestant in contestants] for _ in range(repeats)]
    return [list(column) for column in zip(*rounds, strict=True)]


def _rested(contestant: Routine | Worker) -> Repetition:
    time.sleep(REST)
    return contestant.repeat()


def compare(
    name: str,
    ours: Routine,
    peer: Routine | Worker,
    *,
    target: float,
    repeats: int = REPEATS,
    tolerance: float | None = 1e-3,
    note: str = "",
) -> Row:
    """Our routine against a peer: the ratio is theirs / ours, and `target` its least acceptable
    value.

    `tolerance` bounds the relative deviation of the two results; `None` where both are random. A
    peer that is absent or fails is named in the note, and ours is timed alone.
    """
    first = ours.first()
    try:
        with peer:
            our_repetitions, their_repetitions = interleave([ours, peer], repeats)
    except Absent as absent:
        (our_repetitions,) = interleave([ours], repeats)
        seconds = median_seconds(our_repetitions)
        return Row(
            name,
            seconds,
            peer.label,
            None,
            target,
            _compiling(ours, first, seconds),
            note=str(absent),
        )
    seconds = median_seconds(our_repetitions)
    value, expected = our_repetitions[-1].value, their_repetitions[-1].value
    deviation = abs(value - expected) / abs(expected)
    agrees = tolerance is None or deviation <= tolerance
    comparison = (
        ""
        if tolerance is None
        else f"results {'agree to' if agrees else 'DIFFER by'} {deviation:.0e}"
    )
    return Row(
        name,
        seconds,
        peer.label,
        median_seconds(their_repetitions),
        target,
        _compiling(ours, first, seconds),
        agrees,
        "; ".join(
            filter(None, (note, f"median of {repeats}" if repeats != REPEATS else "", comparison))
        ),
    )


def within(
    name: str, ours: Routine, bound: float, *, repeats: int = REPEATS, note: str = ""
) -> Row:
    """Our routine against a number of seconds that it must not exceed."""
    first = ours.first()
    seconds = median_seconds(interleave([ours], repeats)[0])
    return Row(name, seconds, "the bound", bound, 1.0, _compiling(ours, first, seconds), note=note)


def median_seconds(repetitions: list[Repetition]) -> float:
    return statistics.median(repetition.seconds for repetition in repetitions)


def _compiling(ours: Routine, first: float, warm: float) -> float:
    return max(first - warm, 0.0) * ours.units
