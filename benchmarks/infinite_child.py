"""The process whose peak `infinite` measures: one kernel, above what a first one has left
(compilation is not counted).
"""

import json
import sys

import neuromanifold as nm
from benchmarks.infinite import problem
from benchmarks.peak import rise


def measure(job: str, n: int) -> dict[str, int]:
    """The bytes by which one `nm.infinite_ntk` raises the process."""
    net, x = problem(job, n)
    nm.infinite_ntk(net, x)
    return {"peak": rise(lambda: nm.infinite_ntk(net, x))}


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
