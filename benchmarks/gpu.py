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


Blocks = tuple[tuple[int, int, int], ...]
RESNET: Blocks = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
    (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1),
)  # fmt: skip


def resnet(params: Any, x: Any) -> Any:
    """ResNet-18 as torchvision has it, in evaluation: convolutions with a scale and a shift."""

    def layer(name: str, h: Any, stride: int) -> Any:
        kernel, scale, shift = params[name]
        pad = [(kernel.shape[2] // 2,) * 2] * 2
        h = jax.lax.conv_general_dilated(h, kernel, (stride, stride), pad)
        return h * scale[:, None, None] + shift[:, None, None]

    h = jax.nn.relu(layer("stem", x, 2))
    window, strides, pads = (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, window, strides, pads)
    for i, (_, _, stride) in enumerate(RESNET):
        inner = jax.nn.relu(layer(f"{i}.first", h, stride))
        short = layer(f"{i}.short", h, stride) if f"{i}.short" in params else h
        h = jax.nn.relu(layer(f"{i}.second", inner, 1) + short)
    return h.mean((2, 3)) @ params["head"]


def resnet_params() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def layer(into: int, out: int, side: int) -> tuple[Any, ...]:
        kernel = rng.standard_normal((out, into, side, side)) * np.sqrt(2 / (out * side**2))
        shift = 0.1 * rng.standard_normal(out)
        return tuple(a.astype(np.float32) for a in (kernel, np.ones(out), shift))

    params: dict[str, Any] = {"stem": layer(3, 64, 7)}
    for i, (into, out, stride) in enumerate(RESNET):
        params |= {f"{i}.first": layer(into, out, 3), f"{i}.second": layer(out, out, 3)}
        params |= {f"{i}.short": layer(into, out, 1)} if stride > 1 else {}
    return params | {"head": (rng.standard_normal((512, 10)) / 22.6).astype(np.float32)}


def density() -> Iterator[dict[str, Any]]:
    """How the eigenvalues of ResNet-18's kernel on 10,000 images are distributed."""
    params = jax.tree.map(jnp.asarray, resnet_params())
    for n in (24,) if SMALL else (1_000, 10_000):
        x = np.random.default_rng(1).standard_normal((n, 3, 32, 32), dtype=np.float32)
        began = time.perf_counter()
        found = nm.tangent.spectral_density(
            resnet, params, jnp.asarray(x), probes=2 if SMALL else 8, steps=4 if SMALL else 40
        )
        yield {"n": n, "seconds": time.perf_counter() - began} | {
            "trace": found.trace,
            "largest": found.eigenvalues.tolist(),
            "stable_rank": found.stable_rank,
            "effective_rank": found.effective_rank,
            "above": {f"1e-{i}": found.epsilon_rank(10.0**-i) for i in (1, 2, 3, 4)},
        }


WORDS, WIDTH, DEPTH, HEADS, LENGTH, LOGITS = (
    (97, 24, 2, 2, 8, 3) if SMALL else (50_257, 768, 12, 12, 64, 8)
)


def gpt(params: Any, tokens: Any) -> Any:
    """GPT-2 with its tied head: the first logits after the last token."""

    def norm(h: Any, gain: Any, shift: Any) -> Any:
        centred = h - h.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift

    n, T = tokens.shape
    h = params["words"][tokens] + params["places"][:T]
    mask = jnp.where(np.tri(T, dtype=bool), 0.0, -jnp.inf)
    for b in params["blocks"]:
        parts = norm(h, *b["norm1"]) @ b["qkv"][0] + b["qkv"][1]
        q, k, v = (part.reshape(n, T, HEADS, -1).swapaxes(1, 2) for part in jnp.split(parts, 3, -1))
        weights = jax.nn.softmax(q @ k.swapaxes(2, 3) / np.sqrt(WIDTH // HEADS) + mask)
        h = h + (weights @ v).swapaxes(1, 2).reshape(n, T, WIDTH) @ b["out"][0] + b["out"][1]
        inner = jax.nn.gelu(norm(h, *b["norm2"]) @ b["up"][0] + b["up"][1])
        h = h + inner @ b["down"][0] + b["down"][1]
    return norm(h[:, -1], *params["norm"]) @ params["words"][:LOGITS].T


def gpt_params() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return 0.02 * rng.standard_normal(shape, dtype=np.float32)

    def dense(into: int, out: int) -> tuple[Any, Any]:
        return weight(into, out), weight(out)

    def norm() -> tuple[Any, Any]:
        return 1 + weight(WIDTH), weight(WIDTH)

    blocks = [
        {
            "norm1": norm(), "qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH),
            "norm2": norm(), "up": dense(WIDTH, 4 * WIDTH), "down": dense(4 * WIDTH, WIDTH),
        }
        for _ in range(DEPTH)
    ]  # fmt: skip
    table = {"words": weight(WORDS, WIDTH), "places": weight(LENGTH, WIDTH)}
    return table | {"blocks": blocks, "norm": norm()}


def language() -> Iterator[dict[str, Any]]:
    """The kernel of GPT-2 (124 million parameters), all pairs of eight logits."""
    params = jax.tree.map(jnp.asarray, gpt_params())
    for n in (2, 3) if SMALL else (8, 16, 32):
        tokens = jnp.asarray(np.random.default_rng(1).integers(0, WORDS, (n, LENGTH)))
        plan = nm.tangent.kernel_plan(gpt, params, tokens)
        first, took, _ = seconds(lambda tokens=tokens: nm.ntk(gpt, params, tokens), 2)
        yield {"n": n, "first_s": first, "seconds": took, "routes": plan.headline()} | {
            "megabytes_a_sample": 4e-6 * plan.per_sample
        }


def torch_kernel() -> Iterator[dict[str, Any]]:
    """The kernel of all outputs of torchvision's ResNet-18 against the recipe of PyTorch's own
    tutorial: Jacobians by `torch.func`, contracted weight by weight.
    """
    import torch
    from torch.func import functional_call, jacrev, vmap
    from torchvision.models import resnet18

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    place = "cuda" if torch.cuda.is_available() else "cpu"
    module = resnet18(num_classes=10).eval().to(place)
    weights = {name: value.detach() for name, value in module.named_parameters()}

    def contracted(x: Any) -> Any:
        def at(w: Any, row: Any) -> Any:
            return functional_call(module, w, (row[None],))[0]

        jacobian = vmap(jacrev(at), (None, 0))(weights, x)
        blocks = (jacobian.pop(name).flatten(2) for name in list(jacobian))
        return sum(torch.einsum("iaf,jbf->iajb", block, block) for block in blocks)

    def theirs(x: Any) -> Any:
        found = contracted(x)
        if place == "cuda":
            torch.cuda.synchronize()
        return found

    for n in (2,) if SMALL else (16, 32):
        images = np.random.default_rng(1).standard_normal((n, 3, 32, 32), dtype=np.float32)
        x = torch.as_tensor(images, device=place)
        _, slow, reference = seconds(lambda x=x: theirs(x))
        reference = reference.cpu().numpy()
        torch.cuda.empty_cache()
        f, params = nm.from_torch(module, example=images[:2])
        first, took, kernel = seconds(lambda: nm.ntk(f, params, jnp.asarray(images)))  # noqa: B023
        off = float(
            np.linalg.norm(np.asarray(kernel) - reference.reshape(kernel.shape))
            / np.linalg.norm(reference)
        )
        yield {"n": n, "first_s": first, "seconds": took, "torch_s": slow} | {
            "ratio": slow / took,
            "off": off,
        }


PARTS = {
    "torch": torch_kernel,
    "density": density,
    "language": language,
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
