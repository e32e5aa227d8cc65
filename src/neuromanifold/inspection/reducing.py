"""Files of networks reduced: stacks of layers by their neurons, programs and modules by their
channels, each in the format it came in.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.inspection.opening import fitting_shape, samples
from neuromanifold.models import load, save
from neuromanifold.models.adapters.torch.conversion import from_torch, save_graph, to_torch
from neuromanifold.models.adapters.torch.program_writer import (
    outputs_in_torch,
    program_module,
    write_program,
)
from neuromanifold.models.adapters.torch.tensors import tensors_in
from neuromanifold.models.files.factory import module_with_factory
from neuromanifold.models.model_kind import perceptron, with_all_biases
from neuromanifold.models.storage import layer_names
from neuromanifold.numerics.precision import is_floating
from neuromanifold.numerics.results import count_of
from neuromanifold.runtime.files import check_output, from_memory, write_atomically
from neuromanifold.runtime.packages import need
from neuromanifold.symmetry.reduction.reduce import Reduction, reduce_width


def reduce_file(
    model: str, data: str | None, out: Path | None, factory: str | None, **reading: Any
) -> tuple[str, Path]:
    """What went of the network in a file, and the file of the rest; `out` is `smaller` in the
    format that it came in, when absent.
    """
    program = factory is None and Path(model).suffix == ".pt2"
    out = out or Path("smaller.pt2" if program else "smaller.safetensors")
    if program or out.suffix in (".pt", ".pth"):
        need("torch")
    if factory is not None:
        return reduce_module(model, data, out, factory)
    return (
        reduce_program(model, data, out, **reading)
        if program
        else reduce_layers(model, data, out, **reading)
    )


def reduce_layers(model: str, data: str | None, out: Path, **reading: Any) -> tuple[str, Path]:
    """What went of a stack of linear layers, and the file of the rest; everywhere equal where no
    samples are given.
    """
    check_output(out, "--out", read=(model, data))
    if out.suffix not in (".safetensors", ".pt", ".pth"):
        raise ValueError(
            f"`--out` is {str(out)!r}; pass a file that ends in .safetensors, .pt or .pth (.pt2 "
            "with --factory)."
        )
    loaded, params = with_all_biases(*load(model, **reading))
    if (net := perceptron(loaded)) is None:
        raise ValueError(
            f"`MODEL` is {model!r}, which is no stack of linear layers; pass `--factory "
            "package.module:function` that builds it."
        )
    x = None if data is None else samples(data)[0]
    if x is not None:
        fitting_shape(net, params, x)
    found = reduce_width(net, params, x)
    names = layer_names(model) if found.net.depth == net.depth else None
    said = f"{'-'.join(map(str, net.widths))} → {'-'.join(map(str, found.net.widths))}\n{found}"
    return said, save(out, found.net, found.params, names=names)


def reduce_program(model: str, data: str | None, out: Path, **reading: Any) -> tuple[str, Path]:
    """What went of a `.pt2` program, and the file of the rest, of which nothing was executed; it
    is read again and compared.
    """
    _check_data(data)
    check_output(out, "--out", read=(model, data))
    if out.suffix != ".pt2":
        raise ValueError(
            f"`--out` is {str(out)!r} but `MODEL` is a .pt2; give the smaller one a name that "
            "ends in .pt2."
        )
    (f, params), x = load(model, statistics=True, **reading), samples(str(data))[0]
    fitting_shape(f, params, x)
    found = reduce_width(f, params, x)
    whole, small = program_module(f, params), found.to_torch(example=x)
    moved = _say_moved(outputs_in_torch(f, whole, x), outputs_in_torch(f, small, x))
    path = write_program(out, f, small, x)
    g, smaller = load(path)
    again = _say_moved(jax.tree.leaves(f(params, x)), jax.tree.leaves(g(smaller, x)))
    return (
        f"{_say_result(found, whole, small)}\nin PyTorch {moved}\nread again from the file, {again}",
        path,
    )


def reduce_module(model: str, data: str | None, out: Path, factory: str) -> tuple[str, Path]:
    """What went of the PyTorch module that `factory` builds with the weights of the file, and the
    file of the rest.

    Channels that the samples do not need are removed; outputs before and after are compared in
    PyTorch. `.pt`, `.pth` and `.safetensors` get the state dict of the same layers at smaller
    widths, `.pt2` the graph of any network, with normalisations folded where they can be.
    """
    torch = need("torch")
    _check_data(data)
    check_output(out, "--out", read=(model, data))
    if out.suffix not in (".pt", ".pth", ".safetensors", ".pt2"):
        raise ValueError(
            f"`--out` is {str(out)!r}; pass a file that ends in .pt, .pth, .safetensors or .pt2."
        )
    module, x = module_with_factory(Path(model), factory), samples(str(data))[0]
    graph = out.suffix == ".pt2"
    f, params = from_torch(module, example=x, statistics=True)
    found = reduce_width(f, params, x, fold=graph)
    small = (
        found.to_torch(module, example=x) if graph else to_torch(module, found.params, resize=True)
    )
    said = (
        f"{_say_result(found, module, small)}\nin PyTorch "
        f"{_say_moved(_outputs(module, x, torch), _outputs(small, x, torch))}"
    )
    return said, save_graph(out, small, x) if graph else _write_module(small, out, torch)


def _check_data(data: str | None) -> None:
    if data is None:
        raise ValueError(
            "`DATA` is missing: channels are tried on samples, for example images.npy."
        )


def _say_result(found: Reduction, whole: Any, small: Any) -> str:
    before, after = (sum(p.numel() for p in each.parameters()) for each in (whole, small))
    return (
        f"{before:,} → {after:,} parameters, {count_of(found.neurons_saved, 'unit')} fewer; "
        f"{found.evidence}"
    )


def _say_moved(before: Iterable[Any], after: Iterable[Any]) -> str:
    """How far outputs moved, array by array, beside their size."""
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(before, after, strict=True)
    ]
    moved, size = (
        max(float(np.abs(a).max(initial=0.0)) for a in which)
        for which in ([a - b for a, b in pairs], [a for a, _ in pairs])
    )
    return f"the outputs differ by {moved:.1e} where they are up to {size:.3g}"


def _outputs(module: Any, x: Any, torch: Any) -> list[np.ndarray]:
    """What the module gives in its own dtype, array by array, in float64."""
    dtype = next(module.parameters()).dtype
    batch = jax.tree.map(lambda a: torch.tensor(a, dtype=dtype if is_floating(a) else None), x)
    with torch.no_grad():
        given = (
            module(**batch)
            if isinstance(batch, dict)
            else module(*(batch if isinstance(batch, tuple) else (batch,)))
        )
    return [np.asarray(y.double()) for y in tensors_in(given)]


def _write_module(module: Any, out: Path, torch: Any) -> Path:
    """The state dict of a module."""
    state = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    if out.suffix == ".safetensors":
        from safetensors.torch import save_file

        return write_atomically(out, lambda path: save_file(state, str(path)))
    return write_atomically(out, from_memory(lambda archive: torch.save(state, archive)))
