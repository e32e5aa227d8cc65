"""How each parameter's part of the kernel is computed: the cheapest way by counting, from the graph."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.selection import Selection, select
from neuromanifold.graph.uses import Entering, Use, entering, leaves
from neuromanifold.models.arguments import Model, Signature
from neuromanifold.numerics.validation import sample_arrays

_AMORTISED = 32
_DIRECT = "jacobian"
_MOST_NODES = 20_000


@dataclass(frozen=True, eq=False)
class Route:
    """One use of a parameter and the way it is taken.

    `hadamard`: (a·a′ + [bias])(d·d′), one position.   `gram`: Σ_{t,s} (a_t·a′_s)(d_t·d′_s).   `block`: the Jacobian's block
    G = Σ_t d_t ⊗ a_t on both sides.   `half`: G on one side, a′ and d′ on the other.
    """

    use: Use
    name: str
    way: str


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is known of a kernel before numbers: the graph, the routes, and the leaves that are differentiated by themselves.

    `per_sample` and `per_pair` count the numbers that a block of samples takes, `held` those of a sample's factors alone.
    """

    graph: Graph
    routes: tuple[Route, ...]
    direct: tuple[int, ...]
    reasons: tuple[tuple[str, str], ...]
    outputs: int
    per_sample: float
    per_pair: float
    held: float

    def __str__(self) -> str:
        rows = [(route.name, route.way) for route in self.routes] + [
            (name, f"{_DIRECT}: {why}") for name, why in self.reasons
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {way}" for name, way in rows)


def kernel_plan(f: Model, params: Any, x: Any, *, trace: bool = False, wrt: Any = None) -> Plan:
    """By which way each parameter's part of `nm.ntk` is computed at these shapes; printed, a line for each use. A bias
    goes with its product.

    >>> net = nm.MLP((2, 3, 1))
    >>> print(nm.tangent.kernel_plan(net, net.init(key=jax.random.key(0)), np.ones((4, 2))))
    0.weight  hadamard
    1.weight  hadamard
    """
    return plan(f, params, sample_arrays(x, "x"), select(params, wrt), "trace" if trace else "all")


def plan(f: Model, params: Any, x: Any, chosen: Selection, kind: str) -> Plan:
    """The plan for arrays of these shapes; made once for each of them."""
    return _plan(f, Signature.of(params), Signature.of_sample(x), chosen, kind)


@lru_cache(maxsize=256)
def _plan(f: Model, params: Signature, x: Signature, chosen: Selection, kind: str) -> Plan:
    dtype = next(leaf[1] for leaf in params.leaves)
    graph = trace(f, params.structs(), x.structs(), dtype=dtype, whole=True)
    outputs = sum(math.prod(graph.program.values[i].shape) for i in graph.program.outputs)
    long = len(graph.program.nodes) > _MOST_NODES
    all_direct = Entering((), tuple((i, "the program is too long to follow it") for i in chosen.leaves))
    how = all_direct if long else entering(graph.program, leaves(graph.program, len(graph.parameters)), chosen.leaves)
    routes = tuple(Route(use, graph.parameters[i], _way(use, outputs, kind)) for i, use in how.uses)
    direct = tuple(i for i, _ in how.direct)
    reasons = tuple((graph.parameters[i], why) for i, why in how.direct)
    return Plan(graph, routes, direct, reasons, outputs, *_sizes(graph, routes, direct, outputs, kind))


def _way(use: Use, o: int, kind: str) -> str:
    """The fewest multiplications for a pair of samples."""
    if use.batch == 1 and use.positions == 1:
        return "hadamard"
    B, T, k, c = use.batch, use.positions, use.inner, use.outer
    pairs = o * o if kind == "all" else o
    form = o * T * k * c / _AMORTISED
    costs = {
        "block": B * (pairs * k * c + 2 * form),
        "half": B * (o * T * k * c + pairs * T * c + form),
        "gram": B * (T * T * k + (T * T * o * c + pairs * T * c if kind == "all" else T * T * o * c)),
    }
    return min(costs, key=lambda way: costs[way])


def _sizes(
    graph: Graph, routes: Sequence[Route], direct: Sequence[int], o: int, kind: str
) -> tuple[float, float, float]:
    """Numbers for a sample (inputs, cotangents, blocks, and what the backward pass keeps), for a pair, and of the factors alone."""
    program = graph.program
    kept = sum(math.prod(program.values[i].shape) for i in program.depending(program.inputs[len(graph.parameters) :]))
    passes, pair = float(kept) * (1 + min(o, 4)), (o * o if kind == "all" else o if kind == "diagonal" else 1.0)
    pair, held, formed = 3.0 * pair, 0.0, 0.0
    for route in routes:
        u = route.use
        held += u.batch * u.positions * (u.inner + o * u.outer)
        if route.way in ("block", "half"):
            formed += o * u.batch * u.inner * u.outer
        if route.way == "half":
            pair += o * u.batch * u.outer * u.positions
        if route.way == "gram":
            pair += u.batch * u.positions * (u.positions + (o * u.outer if kind == "all" else u.positions))
    held += o * sum(math.prod(program.values[program.inputs[i]].shape) for i in direct)
    return 2.0 * (passes + held + formed), pair, max(1.0, held)
