"""How each parameter's part of the kernel is computed: the cheapest way by counting, from the
graph.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.selection import Selection, select
from neuromanifold.graph.uses import Entering, Leaf, Use, entering, find_lookup, leaves
from neuromanifold.models.arguments import Model, Params, Samples, Signature
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import sample_arrays
from neuromanifold.runtime.devices import devices

_AMORTISED = 32
_SMALL = 3
"""How much slower products over a few positions are than large ones, and `_NARROW` by how many
columns a product is slow.
"""
_NARROW = 16
_DIRECT = "jacobian"
MOST_NODES = 20_000
LARGE = 2**18
"""A sample's block of so many numbers is contracted by itself: small ones are joined to one long
product.
"""


@dataclass(frozen=True, eq=False)
class Route:
    """One use of a parameter and the way it is taken.

    `hadamard`: (a·a′ + [bias])(d·d′), one position.   `gram`: Σ_{t,s} (a_t·a′_s)(d_t·d′_s).
    `block`: the Jacobian's block
    G = Σ_t d_t ⊗ a_t on both sides.   (G on one side, a′ and d′ on the other is never cheaper than
    both: with T positions, o outputs and k inputs it beats `block` only if T/o + T/k < 1, and then
    `gram` beats it.)
    """

    use: Use
    name: str
    way: str


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """All that is known of a kernel before numbers: the graph, the routes, and the leaves that are
    differentiated by themselves.

    Numbers that a sample takes: `passes` while its factors are made, `held` by its factors, `formed`
    by what is made of them; `per_pair` for a pair of samples.
    """

    graph: Graph
    routes: tuple[Route, ...]
    direct: tuple[int, ...]
    reasons: tuple[tuple[str, str], ...]
    outputs: int
    passes: float
    held: float
    formed: float
    per_pair: float

    @property
    def per_sample(self) -> float:
        """The numbers that a sample of a block takes, with the copies that XLA makes."""
        return 2.0 * (self.passes + self.held + self.formed)

    @property
    def long(self) -> bool:
        """Whether a pass at a single sample keeps the device busy."""
        return self.passes >= LARGE

    def headline(self) -> str:
        """Return how many uses go which way."""
        ways = Counter([*(route.way for route in self.routes), *(_DIRECT for _ in self.direct)])
        uses = ", ".join(f"{count} by {way}" for way, count in ways.items())
        return (
            f"{len(self.routes) + len(self.direct)} uses of parameters: {uses}; {self.outputs:,} "
            "outputs"
        )

    def __str__(self) -> str:
        rows = [(route.name, route.way) for route in self.routes] + [
            (name, f"{_DIRECT}: {why}") for name, why in self.reasons
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {way}" for name, way in rows)


def kernel_plan(
    f: Model, params: Params, x: Samples, *, trace: bool = False, wrt: Any = None
) -> Plan:
    """Say by which way each parameter's part of `nm.ntk` is computed at these shapes; printed, a
    line for each use. A bias goes with its product.

    `trace` and `wrt` are as for `ntk`.

    >>> net = nm.MLP((2, 3, 1))
    >>> print(nm.tangent.kernel_plan(net, net.init(key=jax.random.key(0)), np.ones((4, 2))))
    0.weight  hadamard
    1.weight  hadamard
    """
    return plan(f, params, sample_arrays(x, "x"), select(params, wrt), "trace" if trace else "all")


def plan(f: Model, params: Any, x: Any, chosen: Selection, kind: str) -> Plan:
    """The plan for arrays of these shapes; made once for each of them."""
    return _plan(f, Signature.of(params), Signature.of_sample(x), chosen, kind)


@lru_cache(maxsize=64)
def _plan(f: Model, params: Signature, x: Signature, chosen: Selection, kind: str) -> Plan:
    dtype = next(leaf[1] for leaf in params.leaves)
    graph = trace(f, params.structs(), x.structs(), dtype=dtype, whole=True).with_needed_parts()
    outputs = sum(math.prod(graph.program.values[i].shape) for i in graph.program.outputs)
    long = len(graph.program.nodes) > MOST_NODES
    all_direct = Entering(
        (), tuple((i, "the program is too long to follow it") for i in chosen.leaves)
    )
    found = () if long else leaves(graph.program, len(graph.parameters))
    how = all_direct if long else entering(graph.program, found, chosen.leaves)
    tables = {} if long else _tables(graph, found, how, outputs, kind)
    uses = (*how.uses, *tables.items())
    routes = tuple(Route(use, graph.parameters[i], _way(use, outputs, kind)) for i, use in uses)
    direct = tuple((i, why) for i, why in how.direct if i not in tables)
    reasons = tuple((graph.parameters[i], why) for i, why in direct)
    alone = tuple(i for i, _ in direct)
    return Plan(
        graph, routes, alone, reasons, outputs, *_sizes(graph, routes, alone, outputs, kind)
    )


def _tables(
    graph: Graph, found: Sequence[Leaf], how: Entering, o: int, kind: str
) -> dict[int, Use]:
    """The tables whose rows are looked up, where products of positions are cheaper than the
    Jacobian.
    """
    uses = {i: find_lookup(graph.program, found[i]) for i, _ in how.direct}
    return {i: use for i, use in uses.items() if use is not None and _way(use, o, kind) == "gram"}


def _way(use: Use, o: int, kind: str) -> str:
    """The fewest multiplications for a pair of samples, at the rates that `bench kernel` shows."""
    B, T, k, c = use.batch, use.all_positions, use.inner, use.outer
    if B == T == 1 and not use.is_lookup:
        return "hadamard"
    pairs, form = o * o if kind == "all" else o, o * T * k * c / _AMORTISED
    alike = 1 if use.is_lookup else k
    by_columns = _SMALL * T * T * (alike + o * c) + o * (o + _NARROW) * T * c
    costs = {
        "block": B * (pairs * k * c + 2 * form),
        "gram": B * (by_columns if kind == "all" else T * T * (alike + o * c)),
    }
    return min(costs, key=lambda way: costs[way])


def is_large(route: Route, o: int) -> bool:
    """Whether a sample's block of the Jacobian is contracted by itself."""
    return o * route.use.batch * route.use.inner * route.use.outer >= LARGE


def strip_rows(route: Route, o: int) -> int:
    """How many outer rows of a large block are formed at once: all of them on an accelerator, so
    many on a processor that a sample's part is hardly larger than `LARGE`.
    """
    use = route.use
    if devices()[0].platform != "cpu":
        return use.outer
    count = -(-use.outer // max(1, LARGE // (o * use.batch * use.inner)))
    return -(-use.outer // count)


def columns_together() -> int | None:
    """How many samples of the right side `gram` takes in one step; one on a CPU, whose cache
    their products stay in.
    """
    return None if devices()[0].platform == "cpu" else 16


def count_kept_numbers(graph: Graph) -> int:
    """How many numbers of a sample a backward pass keeps at most: all that are computed from its
    data; what is moved alone is not kept again.
    """
    program, data = graph.program, graph.program.inputs[len(graph.parameters) :]
    found = program.depending(data)
    made = [i for node in program.nodes if not node.primitive.carries for i in node.outputs]
    kept = (*data, *(i for i in made if i in found))
    return max(1, sum(math.prod(program.values[i].shape) for i in kept))


def _sizes(
    graph: Graph, routes: Sequence[Route], direct: Sequence[int], o: int, kind: str
) -> tuple[float, float, float, float]:
    """Numbers of a sample (what the backward pass keeps; inputs and cotangents; blocks), and of a
    pair.
    """
    program = graph.program
    passes, pair = (
        float(count_kept_numbers(graph)) * (1 + min(o, 4)),
        (o * o if kind == "all" else o if kind == "diagonal" else 1.0),
    )
    pair, held, formed, largest = 3.0 * pair, 0.0, 0.0, 0.0
    for route in routes:
        u = route.use
        T = u.all_positions
        held += u.batch * T * ((1 if u.is_lookup else u.inner) + o * u.outer)
        if route.way == "block" and is_large(route, o):
            largest = max(largest, o * u.batch * u.inner * strip_rows(route, o))
        elif route.way == "block":
            formed += o * u.batch * u.inner * u.outer
        if route.way == "gram" and kind == "all":
            formed += (columns_together() or 1) * o * u.batch * T * u.outer
        elif route.way == "gram":
            pair += 2.0 * u.batch * T**2
    held += o * sum(math.prod(program.values[program.inputs[i]].shape) for i in direct)
    return passes, max(1.0, held), formed + largest, pair
