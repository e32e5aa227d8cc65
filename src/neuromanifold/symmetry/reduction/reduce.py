"""`reduce_width`: a smaller network with the same function."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from neuromanifold.graph.graph import trace
from neuromanifold.graph.numbers import Rationals
from neuromanifold.models.activation import Mixed, per_neuron
from neuromanifold.models.adapters.torch.conversion import to_graph_module
from neuromanifold.models.adapters.torch.program_writer import (
    program_graph,
    read_from_file,
    write_program,
)
from neuromanifold.models.arguments import Model, Samples, check_arguments
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import perceptron
from neuromanifold.models.storage import save
from neuromanifold.numerics.drawing import axes_of, bar, card, colours_of, plot_bar, table_of
from neuromanifold.numerics.precision import arithmetic, boundary, is_floating, is_traced
from neuromanifold.numerics.results import Result, count_of, follows
from neuromanifold.numerics.validation import (
    check_params,
    check_sample,
    indefinite,
    leading_axis,
    sample_arrays,
)
from neuromanifold.symmetry.reduction.box import Box
from neuromanifold.symmetry.reduction.narrowing import (
    PROBES,
    Limits,
    Narrowed,
    narrow,
    products,
    smaller_parameters,
)
from neuromanifold.symmetry.reduction.rewriting import (
    Removal,
    begin,
    exhaust,
    finish,
    signs_on_box,
)
from neuromanifold.tangent.rank.geometry import Geometry

LIMITS = Limits()
_LISTED = 8
"""Steps in a notebook's table; the others fold out."""
_EXACT_PRODUCTS = 10**6
_WALKED_PRODUCTS = 2 * 10**4
"""A walk makes its rationals one by one, and they grow with depth."""


@dataclass(frozen=True, eq=False, repr=False)
class Reduction(Result):
    """A smaller network with its evidence.

    `deviation` is the largest |f_small − f| over the sample (over random inputs when there is
    none); `exact` says that it was computed in rational arithmetic, so that it is what the
    parameters' own rounding costs and nothing else. `removed` lists what went and why, each step
    with the reason why it holds at every input (`everywhere`), where there is one. The networks are
    equal everywhere if every step is (`proved`), up to the rounding of the parameters. `on_sample`
    says whether a step is claimed on the sample and the linear regions that it meets only; steps
    that are neither were tested on it and on `probes` wide inputs. `whole` is the network at its first
    widths, with zeros for what went (None for perceptrons). `held_out` is the deviation on samples
    that nothing was read from, `left_out` says which axes were not looked at, `limits` what counted
    as equal.
    """

    net: Any
    params: Any
    deviation: float
    exact: bool
    removed: tuple[Removal, ...]
    neurons_saved: int
    parameters_saved: int
    whole: Narrowed | None = None
    limits: Limits = LIMITS
    held_out: float | None = None
    left_out: tuple[str, ...] = ()
    probes: int = PROBES

    @property
    def proved(self) -> bool:
        """Whether the networks are equal at every input, step by step."""
        return all(removal.everywhere for removal in self.removed)

    @property
    def on_sample(self) -> bool:
        """Whether some step holds on the sample, and may not elsewhere."""
        return any(removal.on_sample for removal in self.removed)

    def to_torch(self, module: Any = None, *, example: Any) -> Any:
        """Return the smaller network as an `fx.GraphModule`, of a network that came from PyTorch:
        `nm.from_torch(module, example=example)`.

        Its graph is the module's at fewer parameters, which are named as before. Where a layer does
        not take them (a normalisation whose statistics are not among them), the graph first puts
        them at their places among zeros; what was folded is a buffer. Values are rounded to the
        module's dtypes. `nm.to_torch(module, params, resize=True)` gives the module's own layers
        where they can be resized. A network from a `.pt2` file needs no `module`: its graph is
        built from the program that was read.
        """
        if self.whole is None or not isinstance(self.params, dict):
            raise TypeError(
                f"the reduced network is {indefinite(self.net)}, not one that `nm.from_torch` gave."
            )
        smaller = smaller_parameters(self.whole, self.params)
        if module is not None:
            return to_graph_module(module, smaller, example)
        if not read_from_file(self.whole.f):
            raise TypeError(
                "`module` is missing: the network came from a module, not from a .pt2 file; pass "
                "the module."
            )
        return program_graph(self.whole.f, smaller, example)

    def save(self, path: str | Path, *, example: Any = None) -> Path:
        """Write the smaller network to `path` in the format it came in: an `nm.MLP` as `nm.save` does, what
        came from a `.pt2` file as one again.

        Writing a `.pt2` needs PyTorch (reading does not) and `example`, one batch of the network's
        input. The arguments, the form of the output, free axes, buffers, shared weights and names
        are the file's; nothing of the file is executed.
        """
        if self.whole is None:
            return save(path, self.net, self.params)
        if not read_from_file(self.whole.f):
            raise TypeError(
                "the network did not come from a .pt2 file; save the module that `to_torch` gives "
                "with torch.export.save."
            )
        if Path(path).suffix != ".pt2":
            raise ValueError(
                f"`path` is {str(path)!r}; give the file a name that ends in .pt2, as the network "
                "came."
            )
        if example is None:
            raise ValueError("`example` is missing; pass one batch of the network's input.")
        return write_program(Path(path), self.whole.f, self.to_torch(example=example), example)

    @property
    def _parts(self) -> list[tuple[str, int]]:
        """The parameters, kept and saved."""
        kept = sum(np.size(leaf) for leaf in jax.tree.leaves(self.params))
        return [("kept", kept), ("saved", self.parameters_saved)]

    def plot(self, axes: Any = None) -> Any:
        """Draw one bar of all parameters: those that are kept and those that are saved; returns the
        axes.
        """
        total = sum(count for _, count in self._parts)
        return plot_bar(axes_of(axes, (7, 1.6)), self._parts, total, x="parameters")

    def _repr_html_(self) -> str:
        (_, kept), (_, saved) = self._parts
        head = self.evidence.partition("\n")[0]
        steps = [
            (
                f"layer {r.layer}",
                count_of(r.count, r.what),
                f"{r.reason}{'; ' * bool(r.everywhere)}{r.everywhere}",
            )
            for r in self.removed
        ]
        steps += [("not looked at", "", f"the channels of {each}") for each in self.left_out]
        said = (
            f"{kept:,} of {kept + saved:,} parameters compute the same"
            if saved
            else "nothing to remove"
        )
        return card(
            "Reduction",
            [f"{said}: {head}."],
            [bar(self._parts, "Parameters")],
            [*table_of(self._parts, kept + saved), *steps[:_LISTED]],
            colours=colours_of(self._parts),
            details=steps[_LISTED:],
        )

    def headline(self) -> str:
        """Return the first line of `str`."""
        return str(self).partition("\n")[0]

    @property
    def evidence(self) -> str:
        """Where the networks are equal, how far the outputs moved on the sample, and step by
        step what went and why.
        """
        beyond = "everywhere" if self.proved else f"on the sample and on {self.probes} wide inputs"
        on_box = any(removal.on_box for removal in self.removed)
        where = "on the sample" if self.on_sample else "on the box" if on_box else beyond
        how = "exactly computed" if self.exact else "float64"
        near = self.limits.tolerance > 0
        equal = f"equal within {self.limits.tolerance:g} of the largest output" if near else "equal"
        head = f"{equal} {where}, deviation {self.deviation:.1e} ({how})"
        if self.held_out is not None:
            head += f", {self.held_out:.1e} on the samples held out"
        unseen = [f"  not looked at: the channels of {each}" for each in self.left_out]
        return "\n".join([head, *(f"  {removal}" for removal in self.removed), *unseen])

    def __str__(self) -> str:
        parameters = count_of(self.parameters_saved, "parameter")
        neurons = f"{', '.join(self._saved_by_kind)} and " if self._saved_by_kind else ""
        return f"{neurons}{parameters} saved; {self.evidence}"

    @property
    def _saved_by_kind(self) -> list[str]:
        """How many neurons, channels and units went."""
        kinds = list(dict.fromkeys(r.what for r in self.removed if r.what != "parameter"))
        if len(kinds) > 1:
            counts = [sum(r.count for r in self.removed if r.what == kind) for kind in kinds]
            return [count_of(n, f"hidden {kind}") for n, kind in zip(counts, kinds, strict=True)]
        if self.whole is not None and not self.neurons_saved:
            return []
        return [count_of(self.neurons_saved, f"hidden {(kinds or ['neuron'])[0]}")]


@follows
def reduce_width(
    net: Model,
    params: Any,
    x: Samples | None = None,
    *,
    rtol: float = 8 * 2.0**-52,
    fold: bool = True,
    max_deviation: float = 0.0,
    everywhere: bool = False,
    domain: Any = None,
    held_out: Samples | None = None,
) -> Reduction:
    """Make a smaller network that computes the same: at every input, or with `x` on the sample and
    the linear regions it meets.

    **Perceptrons** (`nm.MLP`). At every input these neurons can be removed: those without outgoing
    weights, constant ones, and those that are equal, opposite (odd or even σ) or proportional
    (homogeneous σ) to another. Linear layers are folded. On the sample also neurons that are off on
    all of it are removed, and neurons that are linear on all of it are merged into as few as compute
    the same. Signs on the sample are decided exactly. `rtol` says which weights count as equal. The
    parameters come back in float64, as JAX arrays if they came so and JAX's x64 flag is on.

    **Other networks** are reduced by their channels, which are read from the graph; this needs `x`.
    The same kinds of channels are removed or merged, and running statistics go with their channels.
    `x` may be an iterable of batches, more than memory holds: channels are read from all of them, and
    the steps are confirmed on the first. Unless `fold=False`, scales and shifts that are made of
    parameters alone (normalisation in evaluation mode, gains) are folded into the weights beside
    them, and are None in `params`. `net` of the result is f itself where it runs at the smaller
    parameters; else it is f with zeros in the place of what was removed.

    The result is exact up to rounding. With `max_deviation` channels that are nearly constant or
    nearly a multiple of another are removed too, as many as keep |f_small − f| on the sample within
    `max_deviation` times the largest |f|. With `everywhere=True` only steps are made that hold at
    every input; with `domain=(low, high)` also steps that hold on that box, by bounds of every value
    there. `held_out` are further samples, on which only the deviation is reported.

    >>> net = nm.MLP((1, 3, 1))
    >>> hidden = nm.Layer(np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 0.0, -5.0]))
    >>> params = (hidden, nm.Layer(np.array([[1.0, 1.0, 1.0]]), np.zeros(1)))
    >>> nm.reduce_width(net, params).net.widths                                        # neurons 0 and 1 are parallel
    (1, 2, 1)
    >>> small = nm.reduce_width(net, params, np.array([[-1.0], [1.0], [2.0]]))         # and 2 is off on the sample
    >>> small.net.widths, small.deviation, small.exact
    ((1, 1, 1), 0.0, True)
    >>> nm.reduce_width(net, params, domain=(-1.0, 4.0)).net.widths                    # and wherever x ≤ 4
    (1, 1, 1)
    """
    x, batches = _take_sample(x)
    if is_traced((params, x)):
        raise TypeError(
            "`reduce_width` changes shapes and runs on the host; call it outside jit, vmap and "
            "grad."
        )
    check_params(params)
    if not isinstance(max_deviation, int | float) or not 0 <= max_deviation < np.inf:
        raise ValueError(f"`max_deviation` is {max_deviation!r}; pass a finite number, 0 or more.")
    layers = perceptron(net)
    if layers is not None:
        layers.check_params(params)
        params = tuple(
            type(p)(*(None if a is None else np.asarray(a, np.float64) for a in p)) for p in params
        )
        if x is not None:
            layers.check(params, x)
            check_sample(x)
    box = None if domain is None else _box(net, layers, params, x, domain)
    limits = Limits(rtol, max_deviation, everywhere, box)
    x = _points(net, box, x) if box is not None else x
    if layers is not None and x is None:
        return _of_layers(None, layers, params, None, limits, held_out)
    x = x if layers is not None else _check_sample(net, params, x)
    geometry = Geometry(net if layers is None else layers, params, x)
    return reduction_of(geometry, limits=limits, fold=fold, held_out=held_out, batches=batches)


@runtime_checkable
class _Array(Protocol):
    """What NumPy can make an array of."""

    def __array__(self) -> Any:
        """The array."""
        ...


def _take_sample(x: Any) -> tuple[Any, Callable[[], Iterable[Any]] | None]:
    """The sample, or the first batch of an iterable of batches and what gives all of them."""
    if isinstance(x, list | tuple | dict | str | _Array) or not isinstance(x, Iterable):
        return x, None
    given: Iterable[Any] = x
    batches = iter(given)
    first = next(batches, None)
    if first is None:
        raise ValueError("`x` has no batches; pass at least one.")
    every = itertools.chain([first], batches) if batches is given else given
    return first, lambda: (_leaves(batch) for batch in every)


def _leaves(batch: Any) -> tuple[np.ndarray, ...]:
    return tuple(_widen(a) for a in jax.tree.leaves(sample_arrays(batch)))


def _box(net: Model, layers: MLP | None, params: Any, x: Any, domain: Any) -> Box:
    """The box as arrays of one sample, whose shape a sample or the perceptron tells."""
    if x is None and layers is None:
        raise TypeError(
            f"`x` is None but `net` is {indefinite(net)}; pass samples, from which its graph is "
            "traced."
        )
    like = np.zeros((1, layers.widths[0])) if x is None and layers is not None else x
    return Box.of(domain, trace(net, params, like))


def _points(net: Model, box: Box, x: Any) -> Any:
    """Inputs of the box on which steps are confirmed."""
    drawn = box.drawn(PROBES, np.random.default_rng(0))
    return drawn[0] if x is None else jax.tree.unflatten(jax.tree.structure(x), drawn)


def reduction_of(
    geometry: Geometry,
    *,
    limits: Limits = LIMITS,
    fold: bool = True,
    held_out: Any = None,
    batches: Callable[[], Iterable[Any]] | None = None,
) -> Reduction:
    """Return the reduction of a geometry that others may have asked already: of an `nm.MLP` by its
    neurons, of others by their channels.

    Neurons are rewritten exactly, also without a sample, and the deviation is a rational number;
    that is why perceptrons have a way of their own. Both ways keep the same parameters; by channels
    4-16-16-2 takes 1.8 times the processor time on 64 samples, 10-64-64-4 half of it (warm).
    """
    if (net := perceptron(geometry.f)) is None:
        return _of_channels(geometry, limits, fold, held_out, batches)
    params, x = jax.tree.map(lambda a: np.asarray(a, np.float64), (geometry.params, geometry.x))
    if limits.box is not None:
        signs = signs_on_box(net, params, limits.box)
    else:
        exact = _is_exact(net) and not limits.everywhere
        signs = geometry.problem.signs.layers if exact else None
    return _of_layers(signs, net, params, x, limits, held_out)


def _of_channels(
    geometry: Geometry,
    limits: Limits,
    fold: bool,
    held_out: Any,
    batches: Callable[[], Iterable[Any]] | None,
) -> Reduction:
    f, params = geometry.f, geometry.params
    wide = jax.tree.map(_widen, geometry.x)
    found = narrow(f, params, wide, limits, fold=fold, batches=batches)
    small = (
        Geometry(found.f, jax.tree.map(_widen, found.params), wide) if found.removed else geometry
    )
    exact = _exact_deviation(geometry, small)
    sizes = [
        sum(np.size(leaf) for leaf in jax.tree.leaves(tree)) for tree in (params, found.params)
    ]
    return Reduction(
        net=found.f,
        params=found.params,
        deviation=found.deviation if exact is None else exact,
        exact=exact is not None,
        removed=found.removed,
        neurons_saved=found.channels,
        parameters_saved=sizes[0] - sizes[1],
        whole=found.whole,
        limits=limits,
        held_out=_measure_held_out(f, params, found.f, found.params, held_out),
        left_out=found.left_out,
        probes=found.probes,
    )


def _measure_held_out(f: Model, params: Any, small: Model, smaller: Any, x: Any) -> float | None:
    """max |f_small − f| on samples that nothing was read from."""
    if x is None:
        return None
    with arithmetic():
        x = jax.tree.map(_widen, sample_arrays(x, "held_out"))
        full = jax.tree.map(_widen, params)
        pairs = zip(jax.tree.leaves(small(smaller, x)), jax.tree.leaves(f(full, x)), strict=True)
        return max(float(np.abs(np.asarray(a) - np.asarray(b)).max(initial=0.0)) for a, b in pairs)


def _check_sample(f: Model, params: Any, x: Any) -> Any:
    if x is None:
        raise TypeError(
            f"`x` is None but `net` is {indefinite(f)}; pass samples, from which its graph is "
            "traced."
        )
    x = sample_arrays(x)
    with boundary(params, x):
        check_arguments(f, params, x)
    return x


def _widen(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float64) if is_floating(leaf) else np.asarray(leaf)


def _exact_deviation(full: Geometry, small: Geometry) -> float | None:
    """max |f_small − f| over the sample in rational arithmetic; None where a network has none,
    or has too many products.
    """
    found = []
    for geometry in (full, small):
        if (
            not geometry.graph.exact
            or leading_axis(geometry.x) * products(geometry.graph) > _WALKED_PRODUCTS
        ):
            return None
        found.append(geometry.problem.values(Rationals()).ravel())
    return float(max((abs(a - b) for a, b in zip(*found, strict=True)), default=0))


def _of_layers(
    signs: Sequence[np.ndarray] | None,
    net: MLP,
    params: Params,
    x: Any,
    limits: Limits,
    held_out: Any,
) -> Reduction:
    """The reduction of a float64 perceptron, its signs on the sample (or at the ends of what is
    possible on a box) given where these are to count.

    Neurons are rewritten layer by layer in NumPy: the channels of the same network as a graph take
    3 to 6 times as long (0.05 s, and 2 s when nothing is compiled yet; 0.01 and 0.1 here), and do
    not fold a whole layer that is linear on the sample into the next.
    """
    work = exhaust(
        begin(net, params, signs), net.widths[0], limits.rtol, on_box=limits.box is not None
    )
    smaller, reduced = finish(work, net)
    removed = work.removed
    if limits.tolerance > 0 and x is not None and smaller.hidden:
        found = narrow(smaller, reduced, x, replace(limits, tolerance=limits.tolerance), fold=True)
        smaller, reduced = _rebuilt(smaller, found.whole, found.params)
        removed = (*removed, *found.removed)
    points = np.random.default_rng(0).standard_normal((PROBES, net.widths[0])) if x is None else x
    deviation, exact = _deviation((net, params), (smaller, reduced), points)
    return Reduction(
        net=smaller,
        params=reduced,
        deviation=deviation,
        exact=exact,
        removed=removed,
        neurons_saved=net.hidden - smaller.hidden,
        parameters_saved=net.n_params - smaller.n_params,
        limits=limits,
        held_out=_measure_held_out(net, params, smaller, reduced, held_out),
    )


def _rebuilt(net: MLP, whole: Narrowed, params: Params) -> tuple[MLP, Params]:
    """The perceptron of fewer neurons that `params` are the parameters of."""
    names = {name: k for k, name in enumerate(whole.names)}
    entries = []
    for index, entry in enumerate(net.activation):
        kept = whole.kept[names[f"{index}.weight"]][0]
        runs = [
            (a, int(((kept >= run.start) & (kept < run.stop)).sum()))
            for a, run in per_neuron(entry, net.widths[index + 1])
        ]
        present = [(a, count) for a, count in runs if count] or runs[:1]
        entries.append(present[0][0] if len(present) == 1 else Mixed(*present))
    widths = (net.widths[0], *(len(layer.weight) for layer in params))
    smaller = replace(net, widths=widths, activation=tuple(entries))
    scales = zip(net.weight_scales, smaller.weight_scales, strict=True)
    return smaller, tuple(
        type(layer)(layer.weight * (old / new), layer.bias)
        for layer, (old, new) in zip(params, scales, strict=True)
    )


def _is_exact(net: MLP) -> bool:
    """Whether the signs of the network can be decided exactly."""
    activations = [a for entry in net.activations for a, _ in per_neuron(entry, 1)]
    return all(
        not {"slopes", "polynomial"} & a.measured
        and (a.slopes is not None or a.polynomial is not None)
        for a in activations
    )


def _deviation(
    full: tuple[MLP, Params], small: tuple[MLP, Params], x: np.ndarray
) -> tuple[float, bool]:
    """max |f_small − f|, in rational arithmetic where the network and its size allow."""
    net = full[0]
    if _is_exact(net) and net.scaling == "standard" and len(x) * net.n_params <= _EXACT_PRODUCTS:
        ours, theirs = _rational_values(*small, x), _rational_values(*full, x)
        return float(max(abs(a - b) for a, b in zip(ours, theirs, strict=True))), True
    return float(np.abs(small[0](small[1], x) - full[0](full[1], x)).max()), False


def _rational_values(net: MLP, params: Params, x: np.ndarray) -> list[Fraction]:
    """All outputs, exactly: floats are rationals, and FLINT multiplies rational matrices."""
    import flint

    a = _rational(flint, x.T)
    for layer, entry in zip(params, net.activations, strict=True):
        z = _rational(flint, layer.weight) * a
        if layer.bias is not None:
            z = z + _rational(flint, np.repeat(layer.bias[:, None], x.shape[0], axis=1))
        rows = z.tolist()
        for activation, run in per_neuron(entry, len(rows)):
            for i in range(run.start, run.stop):
                rows[i] = [_activate(flint, activation, value) for value in rows[i]]
        a = flint.fmpq_mat(rows)
    return [Fraction(int(v.p), int(v.q)) for row in a.tolist() for v in row]


def _rational(flint: Any, a: np.ndarray) -> Any:
    return flint.fmpq_mat(
        [[flint.fmpq(*value.as_integer_ratio()) for value in row] for row in a.tolist()]
    )


def _activate(flint: Any, activation: Any, z: Any) -> Any:
    if activation.slopes is not None:
        return z * flint.fmpq(*float(activation.slopes[1 if z > 0 else 0]).as_integer_ratio())
    value = flint.fmpq(0)
    for coefficient in reversed(activation.polynomial):
        value = value * z + flint.fmpq(*float(coefficient).as_integer_ratio())
    return value
