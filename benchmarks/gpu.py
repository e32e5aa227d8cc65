"""One accelerator, measured: matrix products, kernels in tiles, eager calls, many trainings. Prints
a line of JSON for each.

Run `PYTHONPATH=src:. python3 -m benchmarks.gpu [part …]`; parts that fail say so in their line and
the others go on.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm

WIDTHS = (784, 1024, 1024, 10)
SMALL = jax.default_backend() == "cpu"
"""On a CPU every size is cut, so that the script itself can be tried."""
PRECISIONS = ("highest", "tf32x3", "bf16x3", "default")


def seconds(work: Callable[[], Any], repeats: int = 3) -> tuple[float, float, Any]:
    """(first call, median of the next, result)."""
    times, result = [], None
    for _ in range(repeats + 1):
        result = None  # the last result leaves the device before the next is made
        began = time.perf_counter()
        result = jax.block_until_ready(work())
        times.append(time.perf_counter() - began)
    return times[0], statistics.median(times[1:]), result


def product_rates() -> Iterator[dict[str, Any]]:
    """TF/s and relative error of one product of square matrices."""
    from neuromanifold.numerics.precision import PRODUCTS

    n = 512 if SMALL else 8192
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    exact = a[:64].astype(np.float64) @ b.astype(np.float64)
    for name, dtype in [(name, np.float32) for name in PRECISIONS] + [("highest", np.float64)]:
        try:
            with jax.enable_x64(True), jax.default_matmul_precision(PRODUCTS[name]):
                left, right = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
                first, took, c = seconds(lambda left=left, right=right: _product(left, right), 5)
            error = float(
                np.linalg.norm(np.asarray(c[:64], np.float64) - exact) / np.linalg.norm(exact)
            )
            yield {
                "precision": name,
                "dtype": np.dtype(dtype).name,
                "n": n,
                "seconds": took,
                "error": error,
            } | {
                "teraflops": 2 * n**3 / took / 1e12,
                "first_s": first,
            }
        except Exception as error:
            yield {"precision": name, "dtype": np.dtype(dtype).name, "failed": str(error)[:300]}


@jax.jit
def _product(a: Any, b: Any) -> Any:
    return a @ b


def network(n: int, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    """784-1024-1024-10 and n random images on the device."""
    net = nm.MLP(WIDTHS)
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    with jax.enable_x64(True):
        x = jnp.asarray(
            np.random.default_rng(0).standard_normal((n, WIDTHS[0]), dtype=np.float32), dtype
        )
        return net, jax.tree.map(lambda a: jnp.asarray(a, dtype), params), x


def multiplications(trace: bool = True) -> int:
    """Of one pair of samples: a·a′ for each layer, d·d′ for each layer and output (or pair of
    outputs).
    """
    o = WIDTHS[-1]
    pairs = o if trace else o * o
    return sum(
        fan_in + pairs * fan_out for fan_in, fan_out in zip(WIDTHS[:-1], WIDTHS[1:], strict=True)
    )


def trace_kernel() -> Iterator[dict[str, Any]]:
    """The trace kernel of 60,000 images in tiles, half the products, at every precision, against
    full float64.
    """
    n, some = (1500, 128) if SMALL else (60_000, 512)
    net, params, x = network(n)
    reference = np.asarray(nm.ntk(*network(some, np.float64), trace=True))
    full = None
    for precision in PRECISIONS:
        try:
            first, took, kernel = seconds(
                lambda p=precision: nm.ntk(net, params, x, trace=True, precision=p), 2
            )
            found = np.asarray(kernel[:some, :some], np.float64)
            error = float(np.linalg.norm(found - reference) / np.linalg.norm(reference))
            symmetric = bool((kernel[:some, -some:] == kernel[-some:, :some].T).all())
            rate = n * (n + 1) / 2 * 2 * multiplications() / took / 1e12
            full = took if precision == "highest" else full
            yield {
                "n": n,
                "precision": precision,
                "first_s": first,
                "seconds": took,
                "teraflops_of_half": rate,
            } | {
                "error": error,
                "symmetric": symmetric,
                "times_faster_than_highest": full and full / took,
            }
            del kernel
        except Exception as error:
            yield {
                "n": n,
                "precision": precision,
                "failed": f"{type(error).__name__}: {error}"[:500],
            }


def trace_kernel_float64() -> Iterator[dict[str, Any]]:
    """The same in float64 at half the samples: faster than float32 on this device where its
    products are.
    """
    n = 1500 if SMALL else 30_000
    net, params, x = network(n, np.float64)
    with jax.enable_x64(True):
        first, took, _ = seconds(lambda: nm.ntk(net, params, x, trace=True), 2)
    rate = n * (n + 1) / 2 * 2 * multiplications() / took / 1e12
    yield {"n": n, "first_s": first, "seconds": took, "teraflops_of_half": rate}


def eager() -> Iterator[dict[str, Any]]:
    """A plain call of `nm.ntk` against the same under `jax.jit`."""
    for n, trace in ((64, False), (128, True)) if SMALL else ((1_000, False), (10_000, True)):
        net, params, x = network(n)
        try:
            first, plain, _ = seconds(lambda: nm.ntk(net, params, x, trace=trace), 5)  # noqa: B023
            core = jax.jit(lambda p, z: nm.ntk(net, p, z, trace=trace))  # noqa: B023
            first_core, jitted, _ = seconds(lambda: core(params, x), 5)  # noqa: B023
            whole = n * n * 2 * multiplications(trace)
            yield {
                "n": n,
                "trace": trace,
                "eager_s": plain,
                "jitted_s": jitted,
                "first_s": first,
            } | {
                "first_jitted_s": first_core,
                "eager_over_jitted": plain / jitted,
                "jitted_teraflops_of_all": whole / jitted / 1e12,
            }
        except Exception as error:
            yield {"n": n, "trace": trace, "failed": f"{type(error).__name__}: {error}"[:500]}


def training() -> Iterator[dict[str, Any]]:
    """Many runs of the (1,10,10,10,10,1) network in one call of `nm.train`."""
    runs, epochs = (50, 4) if SMALL else (10_000, 40)
    net, d = nm.MLP((1, 10, 10, 10, 10, 1)), nm.data.load("f1")
    params = net.init(key=jax.random.key(0), runs=runs)

    def work(count: int) -> Any:
        return nm.train(
            net, params, d.x, d.y, key=jax.random.key(1), epochs=count, batch_size=16, memory="16G"
        )

    work(2)
    steps = -(-len(d.x) // 16)
    for count in (epochs, 4 * epochs):
        began = time.perf_counter()
        work(count)
        took = time.perf_counter() - began
        yield {
            "runs": runs,
            "epochs": count,
            "seconds": took,
            "million_run_steps_a_second": runs * count * steps / took / 1e6,
        }


PARTS = {
    "products": product_rates,
    "eager": eager,
    "trace": trace_kernel,
    "training": training,
    "trace64": trace_kernel_float64,
}


def main(names: list[str]) -> None:
    device = jax.devices()[0]
    print(
        json.dumps({"part": "device", "kind": device.device_kind, "jax": jax.__version__}),
        flush=True,
    )
    for name in names or PARTS:
        try:
            for line in PARTS[name]():
                print(json.dumps({"part": name} | line), flush=True)
        except Exception as error:
            print(
                json.dumps({"part": name, "failed": f"{type(error).__name__}: {error}"[:500]}),
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
