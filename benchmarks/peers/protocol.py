"""How a peer talks to `benchmarks.worker`: it sets one job up, warms up, says so, and answers each
line with one repetition.

Run with the peer's own python: `python SCRIPT JOB '{"option": value}'`. It needs nothing but the
standard library and `turn.py` beside it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from turn import turn

Repetition = Callable[[], Any]


def serve(jobs: dict[str, Callable[..., Repetition]], summary: Callable[[Any], float]) -> None:
    """Set up the job named on the command line; then, for each line of standard input, repeat it
    and print its seconds.

    `jobs[name](**options)` warms up and returns one repetition; `summary` reduces its result to a
    number that the harness compares with ours, outside the clock.
    """
    answers, sys.stdout = (
        sys.stdout,
        sys.stderr,
    )  # whatever the libraries print must not be taken for an answer
    repetition = jobs[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for _ in sys.stdin:
        seconds, result = turn(repetition)
        print(json.dumps({"seconds": seconds, "value": summary(result)}), file=answers, flush=True)
