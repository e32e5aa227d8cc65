"""The process that `memory` measures: prints the peak of one `nm.ntk`, above a warm-up on few
samples, as JSON.
"""

import json
import sys
import time

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.peak import rise


def measure(widths: list[int], n: int, trace: bool, memory: int) -> dict[str, float]:
    net = nm.MLP(tuple(widths), "relu")
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    x = np.random.default_rng(0).standard_normal((n, widths[0]), dtype=np.float32)
    nm.ntk(net, params, x[:16], trace=trace, memory=memory)
    kernels = []
    start = time.perf_counter()
    peak = rise(lambda: kernels.append(nm.ntk(net, params, x, trace=trace, memory=memory)))
    return {"peak": peak, "output": kernels[0].nbytes, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
