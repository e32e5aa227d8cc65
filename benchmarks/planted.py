"""Reduction at real width: dead, equal and proportional channels, units and heads are planted in
ResNet-18, VGG-11 with batch normalisation, MobileNetV3-small and a GPT of six layers, and
`nm.reduce_width` looks for them.

    .venv-torch/bin/python benchmarks/planted.py [NAME …]

A row for each: how many were planted and how many are left, processor seconds and peak memory of
the conversion and of the reduction in a process of its own (memory of all of it, PyTorch and both
networks included), parameters, processor milliseconds of a batch in PyTorch on one thread before
and after, and how far PyTorch's outputs in float32 moved over the largest of them. The networks are
not trained, and many of their channels happen to be off on a few images; with nothing planted only
steps that hold at every input are made: folded normalisations.
"""

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import neuromanifold as nm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from torch_architectures import VGG11, MobileNetV3Small, ResNet18, trained_like
from torch_planting import Planting, plant
from torch_zoo import GPT

NETWORKS: dict[str, Callable[[], Any]] = {
    "ResNet-18": ResNet18,
    "VGG-11-BN": VGG11,
    "MobileNetV3-small": MobileNetV3Small,
    "GPT, 6 layers, d = 384": lambda: GPT(256, 384, 6, 6, 64),
}
HEADER = (
    "| network | planted | left | conversion, s | GB | reduction, s | GB | parameters | batch, ms "
    "| outputs moved |\n|---|---|---|---|---|---|---|---|---|---|"
)
SHARE = 1 / 16


def row(name: str, *, planted: bool) -> str:
    """The row of the table for a network."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    plan, module = Planting(rng), trained_like(NETWORKS[name](), 0)
    if planted:
        plant(module, plan, SHARE)
    images = rng.normal(size=(32, 3, 32, 32)).astype(np.float32)
    x = rng.integers(0, 256, (8, 64)) if name.startswith("GPT") else images
    start = time.process_time()
    f, params = nm.from_torch(module, example=x)
    gc.collect()  # what the conversion compared is garbage by now
    converted, peaks = time.process_time(), [_peak()]
    found = nm.reduce_width(f, params, x, rtol=1e-6, everywhere=not planted)
    done = time.process_time()
    print(found, file=sys.stderr)
    assert found.whole is not None
    names = enumerate(found.whole.names)
    kept = {n: found.whole.kept[k][0] for k, n in names if found.whole.shapes[k]}
    peaks.append(_peak())
    small = found.to_torch(module, example=x)
    batch = torch.as_tensor(x)
    (before, slow), (after, fast) = _timed(module, batch), _timed(small, batch)
    moved = float((after - before).abs().max() / before.abs().max())
    counts = [sum(p.numel() for p in each.parameters()) for each in (module, small)]
    left = found.neurons_saved if not planted else len(plan.missed(kept))
    return (
        f"| {name}{'' if planted else ', nothing planted'} | {plan.count:,} | {left:,} | "
        f"{converted - start:.0f} | {peaks[0]:.1f} | {done - converted:.0f} | {peaks[1]:.1f} | "
        f"{counts[0]:,} → {counts[1]:,} | {slow:.0f} → {fast:.0f} | {moved:.0e} |"
    )


def _peak() -> float:
    """The largest memory of this process since the last call, in GB (Linux)."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def _timed(module: Any, batch: Any) -> tuple[Any, float]:
    """The outputs, and the least of ten times in milliseconds of the processor."""
    times = []
    with torch.no_grad():
        y = module(batch)
        for _ in range(10):
            start = time.process_time()
            module(batch)
            times.append(1e3 * (time.process_time() - start))
    return y, min(times)


def main(chosen: list[str]) -> None:
    """Print the rows, each by a process of its own."""
    if chosen[:1] == ["--row"]:
        torch.set_num_threads(1)
        print(row(chosen[1], planted=chosen[2] == "planted"))
        return
    print(HEADER)
    for kind in ("planted", "plain"):
        for name in NETWORKS:
            if not chosen or any(part in name for part in chosen):
                command = [sys.executable, __file__, "--row", name, kind]
                subprocess.run(command, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
