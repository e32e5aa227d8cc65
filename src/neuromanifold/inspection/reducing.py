"""Files of networks reduced: stacks of layers by their neurons, PyTorch modules by their channels, each in the format it came in."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.inspection.opening import samples
from neuromanifold.models import load, save
from neuromanifold.models.adapters.packages import need
from neuromanifold.models.adapters.pytorch import from_torch, save_graph, to_torch
from neuromanifold.models.adapters.torch_tensors import tensors_in
from neuromanifold.models.described import perceptron
from neuromanifold.models.files.factory import module_with_factory
from neuromanifold.models.storage import layer_names
from neuromanifold.numerics.files import check_output, write_atomically
from neuromanifold.numerics.precision import is_floating
from neuromanifold.symmetry.reduce import reduce_width


def reduced_layers(model: str, data: str | None, out: Path, **reading: Any) -> tuple[str, Path]:
    """What went of a stack of linear layers, and the file of the rest; everywhere equal where no samples are given."""
    check_output(out, "--out", read=(model, data))
    if out.suffix not in (".safetensors", ".pt", ".pth"):
        raise ValueError(
            f"`--out` is {str(out)!r}; pass a file that ends in .safetensors, .pt or .pth (.pt2 with --factory)."
        )
    loaded, params = load(model, **reading)
    if (net := perceptron(loaded)) is None:
        raise ValueError(
            f"`MODEL` is {model!r}, which is no stack of linear layers; pass `--factory package.module:function` that builds it."
        )
    found = reduce_width(net, params, None if data is None else samples(data)[0])
    names = layer_names(model) if found.net.depth == net.depth else None
    said = f"{'-'.join(map(str, net.widths))} → {'-'.join(map(str, found.net.widths))}\n{found}"
    return said, save(out, found.net, found.params, names=names)


def reduced_module(model: str, data: str | None, out: Path, factory: str) -> tuple[str, Path]:
    """What went of the PyTorch module that `factory` builds with the weights of the file, and the file of the rest.

    Channels that the samples do not need are removed; outputs before and after are compared in PyTorch. `.pt`, `.pth` and `.safetensors`
    get the state dict of the same layers at smaller widths, `.pt2` the graph of any network, with normalisations folded where they can be.
    """
    torch = need("torch")
    if data is None:
        raise ValueError("`DATA` is missing: channels are tried on samples, for example images.npy.")
    check_output(out, "--out", read=(model, data))
    if out.suffix not in (".pt", ".pth", ".safetensors", ".pt2"):
        raise ValueError(f"`--out` is {str(out)!r}; pass a file that ends in .pt, .pth, .safetensors or .pt2.")
    module, x = module_with_factory(Path(model), factory), samples(data)[0]
    graph = out.suffix == ".pt2"
    f, params = from_torch(module, example=x, statistics=True)
    found = reduce_width(f, params, x, fold=graph)
    small = found.to_torch(module, example=x) if graph else to_torch(module, found.params, resize=True)
    first, second = (_outputs(each, x, torch) for each in (module, small))
    before, after = (sum(p.numel() for p in each.parameters()) for each in (module, small))
    said = (
        f"{before:,} → {after:,} parameters, {found.neurons_saved:,} channels fewer\nin PyTorch the outputs differ by "
        f"{np.abs(first - second).max():.1e} where they are up to {np.abs(first).max():.3g}"
    )
    return said, save_graph(out, small, x) if graph else _written(small, out, torch)


def _outputs(module: Any, x: Any, torch: Any) -> np.ndarray:
    """What the module gives in its own dtype, flat, in float64."""
    dtype = next(module.parameters()).dtype
    batch = jax.tree.map(lambda a: torch.tensor(a, dtype=dtype if is_floating(a) else None), x)
    with torch.no_grad():
        given = (
            module(**batch) if isinstance(batch, dict) else module(*(batch if isinstance(batch, tuple) else (batch,)))
        )
    return np.concatenate([np.ravel(np.asarray(y.double())) for y in tensors_in(given)])


def _written(module: Any, out: Path, torch: Any) -> Path:
    """The state dict of a module."""
    state = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    if out.suffix == ".safetensors":
        from safetensors.torch import save_file

        return write_atomically(out, lambda path: save_file(state, str(path)))
    return write_atomically(out, lambda path: torch.save(state, path))
