"""`inspect` of networks as people have them: what each section costs.

    .venv-torch/bin/python benchmarks/real_size.py NAME [MEMORY [SECTION …]]

NAME is `gpt-2` (124 million parameters, 12 layers), `gpt-6` (6 layers of 384 channels), both by
Hugging Face's transformers with random weights and 64 tokens, `resnet` (torchvision's ResNet-18
written out, 10 classes, images of 32×32), `resnet.pt2` (the same by way of a file) or
`resnet-1000.pt2` (a file of one with 1,000 classes); with `+targets` behind it the samples have
random classes and a loss. Prints for the conversion and for each section wall and processor seconds
and the memory of the process before and at its largest (PyTorch and the module included), behind
them what its estimate said, what was left out, and the table. SECTIONs, by the names of their
fields, are those that are asked; without any all are.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import neuromanifold as nm

SAMPLES = {"gpt-2": 16, "gpt-6": 4, "resnet": 64, "resnet.pt2": 64, "resnet-1000.pt2": 64}


def measured(name: str, work: Callable[[], Any], said: str = "") -> Any:
    """What `work` gives, after a line with its seconds and memory (Linux), and what was `said`."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _gigabytes("VmRSS:")
    wall, used = time.perf_counter(), time.process_time()
    try:
        return work()
    finally:
        wall, used = time.perf_counter() - wall, time.process_time() - used
        times = f"{wall:7.1f} s wall {used:7.1f} s processor"
        memory = f"{before:5.2f} → {_gigabytes('VmHWM:'):5.2f} GB"
        print(f"{name:<28} {times} {memory} {said}", flush=True)


def _gigabytes(name: str) -> float:
    """What the system says of this process's memory."""
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) / 2**20


def language(**sizes: int) -> tuple[Any, Any, np.ndarray]:
    """A GPT-2 of Hugging Face with random weights, as from_torch gives it."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    x = np.random.default_rng(0).integers(0, 50_257, (16, 64))
    return *converted(module, x[:2], lambda y: y.logits, {"use_cache": False}), x


def resnet() -> tuple[Any, Any, np.ndarray]:
    """ResNet-18 with ten classes and random weights."""
    module, x = _resnet()
    return *converted(module, x[:2]), x


def resnet_file(classes: int = 10) -> tuple[Any, Any, np.ndarray]:
    """The same by way of a `.pt2` file."""
    import torch

    module, x = _resnet(classes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet.pt2"
        batch = torch.export.Dim("batch")
        example = (torch.as_tensor(x[:3]),)
        torch.export.save(torch.export.export(module, example, dynamic_shapes=({0: batch},)), path)
        return *measured("load", lambda: nm.load(path)), x


def _resnet(classes: int = 10) -> tuple[Any, np.ndarray]:
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from torch_architectures import ResNet18

    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(64, 3, 32, 32)).astype(np.float32)
    return ResNet18(classes=classes).eval(), x


def converted(module: Any, x: Any, output: Any = None, kwargs: Any = None) -> tuple[Any, Any]:
    """The network as a function and its parameters."""
    return measured(
        "from_torch", lambda: nm.from_torch(module, example=x, output=output, kwargs=kwargs)
    )


NETWORKS = {
    "gpt-2": language,
    "gpt-6": lambda: language(n_layer=6, n_embd=384, n_head=6),
    "resnet": resnet,
    "resnet.pt2": resnet_file,
    "resnet-1000.pt2": lambda: resnet_file(1000),
}


def main(name: str, memory: str = "4G", *chosen: str) -> None:
    """Measure one network."""
    module = import_module("neuromanifold.inspection.inspect")

    def timed(section: Any) -> Any:
        def compute(subject: Any) -> Any:
            seconds, size = section.seconds(subject), section.bytes(subject) / 2**30
            said = f"(said {seconds:.0f} s, {size:.2f} GB)"
            return measured(section.title, lambda: section.compute(subject), said)

        return replace(section, compute=compute)

    module.SECTIONS = tuple(
        timed(section) for section in module.SECTIONS if not chosen or section.field in chosen
    )
    name, _, wanted = name.partition("+")
    f, params, x = NETWORKS[name]()
    x = x[: SAMPLES[name]]
    targets = {}
    if wanted:
        classes = np.random.default_rng(1).integers(0, 10, len(x))
        targets = {"y": classes, "loss": nm.losses.cross_entropy}
    outputs = np.s_[-1, :1] if name.startswith("gpt") else None
    found = measured(
        "inspect", lambda: nm.inspect(f, params, x, outputs=outputs, memory=memory, **targets)
    )
    for part in found.parts:
        if part.left_out:
            print(f"{part.title}: {part.left_out}")
    print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
