"""`features`: the gradient of each sample, projected at random to few numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.factors import factors
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.reading import call
from neuromanifold.graph.selection import Selection, select
from neuromanifold.graph.uses import NOT_USED, Use, entering, find_lookup, leaves
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Signature,
    Targets,
    check_arguments,
    check_rows,
    check_target,
)
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import boundary, product_precision, promote, to_host, widest
from neuromanifold.numerics.randomness import Key, check_key
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.runtime.cluster import cluster, complete
from neuromanifold.runtime.devices import where_it_runs
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.kernel.gram import (
    Store,
    digest,
    digest_text,
    open_store,
    tile_size,
)
from neuromanifold.tangent.kernel.routes import MOST_NODES, count_kept_numbers
from neuromanifold.tangent.rank.jacobian import sample_jacobians

_TOGETHER = 4096
"""Rows of the projection that are drawn and multiplied in one step, where they are so few."""


def features(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets | None = None,
    *,
    key: Key,
    k: int = 512,
    loss: Loss = mse,
    wrt: Any = None,
    precision: str = "highest",
    memory: int | str | None = None,
    store: str | Path | None = None,
    tile: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Float[Any, "rows k"]:
    """Project gradients to k numbers that keep their inner products: Φ = JP, E ΦΦᵀ = JJᵀ = Θ.

    J is the Jacobian of the outputs, (n·o, D), sample-major; with targets `y` it has one row for
    each sample, the gradient of its own `loss`. P is D × k with independent entries ±1/√k. An inner
    product of rows φ, ψ that belong to gradients u, v has the mean ⟨u, v⟩ and at most the variance
    (‖u‖²‖v‖² + ⟨u, v⟩²)/k; all pairs of N rows are off by at most ε‖u‖‖v‖ with probability 1 −
    2N²exp(−k(ε²/4 − ε³/6)) (Johnson and Lindenstrauss; Achlioptas 2003). With k ≥ D the rows are
    the gradients themselves and nothing is random. These are the features of TRAK (Park et al.
    2023).

    J is never formed: each parameter's rows of P meet the inputs and cotangents of its products,
    for as many samples at once as `memory` allows. P depends on `key`, k and the architecture only,
    so that features of other samples, of losses or of `wrt` alone go together.

    With `store` the rows are written to a Zarr array in that folder, `tile` samples at a time, as
    `nm.gram` writes kernels: a call that was killed is made again and goes on, `workers` processes
    or the Dask cluster at `scheduler` share the work, and the array is returned, read-only.

    `precision` is as for `ntk`.

    >>> line = lambda params, x: x @ params
    >>> x = np.random.default_rng(0).normal(size=(3, 1000))
    >>> rows = nm.features(line, np.zeros((1000, 1)), x, key=jax.random.key(0), k=400)
    >>> rows.shape, bool(np.abs(rows @ rows.T / (x @ x.T).trace() * 3 - np.eye(3)).max() < 0.3)
    ((3, 400), True)
    """
    refuse_tracers((params, x, y), "`features`")
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
        raise ValueError(f"`k` is {k!r}; pass a number of features, 1 or more.")
    check_key(key)
    budget = memory_budget(memory, device=True)
    dtype = widest(params, x)
    with boundary(params, x, precision=product_precision(precision, dtype)) as leave:
        params, x = check_arguments(f, params, x)
        check_rows(f, params, x)
        chosen = select(params, wrt)
        if y is not None:
            y = promote(check_target(f, params, x, y, loss), dtype)
            check_loss(loss, y)
        task = _Task(
            f, to_host(params), to_host(x), to_host(y), loss if y is not None else None, chosen,
            min(int(k), chosen.size), np.asarray(jax.random.key_data(key)), precision,
        )  # fmt: skip
        n, each = leading_axis(x), task.rows_of_a_sample
        largest = task.samples_at_once(budget)
        if store is None:
            parts = [task.rows(part) for part in blocks(n, largest)]
            return leave(jnp.concatenate(parts) if len(parts) > 1 else parts[0])
        samples = tile_size(tile, largest, n)
        identity = task.identity()
    place = open_store(store, n * each, samples * each, dtype, identity, columns=task.k)
    place.drop_damaged()
    todo = [i for i, _ in place.missing()]
    with cluster(workers, scheduler) as client:
        shared = task if client is None or not todo else client.scatter(task, broadcast=True)
        place.compare(client, _strip, shared, samples)
        jobs = {str(i): (shared, place, samples, i) for i in todo}
        for _ in complete(client, _write_strip, jobs):
            pass
    return place.array()


@dataclass(frozen=True)
class Weighted:
    """The outputs times given numbers, summed: a sample is a pair of f's own and the numbers."""

    f: Model

    def __call__(self, params: Any, sample: tuple[Any, Any]) -> Any:
        x, weights = sample
        outputs = call(self.f, params, x)
        return jnp.sum((outputs * weights).reshape(len(outputs), -1), axis=1, keepdims=True)


@dataclass(frozen=True)
class _Task:
    """What a process needs to compute features; arrays on the host."""

    f: Model
    params: Any
    x: Any
    y: Any
    loss: Loss | None
    chosen: Selection
    k: int
    key: np.ndarray
    precision: str

    @property
    def jax_key(self) -> Any:
        return jax.random.wrap_key_data(jnp.asarray(self.key))

    @property
    def exact(self) -> bool:
        return self.k == self.chosen.size

    @property
    def model(self) -> Model:
        """What is differentiated: f, or with weights that are its loss's gradients."""
        return self.f if self.loss is None else Weighted(self.f)

    @property
    def one(self) -> Any:
        """A sample of the model, of which only the shape matters."""
        first = jax.tree.map(lambda a: a[:1], self.x)
        return first if self.loss is None else (first, call(self.f, self.params, first))

    @property
    def rows_of_a_sample(self) -> int:
        return math.prod(call(self.model, self.params, self.one).shape[1:])

    def ways(self) -> "_Ways":
        """How the chosen parameters enter the model."""
        sample = Signature.of_sample(jax.tree.map(jnp.asarray, self.one))
        return _ways(self.model, Signature.of(self.params), sample, self.chosen)

    def samples_at_once(self, budget: int) -> int:
        """How many samples fit into the budget."""
        o, size = self.rows_of_a_sample, widest(self.params, self.x).itemsize
        numbers = 2.0 * o * self.chosen.size if self.exact else self.ways().numbers(o, self.k)
        return max(1, int(budget / (2 * size * numbers)))

    def rows(self, part: slice) -> Any:
        """Φ at some samples."""
        params = jax.tree.map(jnp.asarray, self.params)
        x, y = jax.tree.map(lambda a: jnp.asarray(a[part]), (self.x, self.y))
        if self.loss is not None:
            x = x, _slopes(self.f, self.loss, params, x, y)
        if self.exact:
            return sample_jacobians(self.model, params, x, self.chosen).reshape(-1, self.k)
        return _project(self.ways(), self.k, params, x, self.jax_key)

    def identity(self) -> dict[str, Any]:
        """What the digits depend on."""
        lowered = _project.lower(self.ways(), self.k, self.params, self.one, self.jax_key)
        return {
            "model": digest_text(lowered.as_text()),
            "params": digest(self.params),
            "x": digest((self.x, self.y)),
            "kind": f"features of {self.loss or 'outputs'}, {', '.join(self.chosen.names)}",
            "key": self.key.tolist(),
            "precision": self.precision,
        } | where_it_runs()


def _write_strip(task: _Task, place: Store, samples: int, i: int) -> None:
    """Compute and write the i-th strip."""
    place.write(i, 0, _strip(task, samples, i))


def _strip(task: _Task, samples: int, i: int, column: int = 0) -> np.ndarray:
    """The i-th strip."""
    dtype, start = widest(task.params, task.x), i * samples
    with boundary(task.params, task.x, precision=product_precision(task.precision, dtype)):
        stop = min(start + samples, leading_axis(task.x))
        return np.asarray(task.rows(slice(start, stop)))


@compiled("f", "loss")
def _slopes(f: Model, loss: Loss, params: Any, x: Any, y: Any) -> Any:
    """The gradient of each sample's own loss in its outputs."""
    slope = jax.grad(lambda output, target: loss(output[None], target[None]))
    return jax.vmap(slope)(call(f, params, x), y)


@dataclass(frozen=True, eq=False)
class _Ways:
    """Each use of a parameter as (leaf, its how-manieth, use), and the leaves without one."""

    graph: Graph
    uses: tuple[tuple[int, int, Use], ...]
    direct: tuple[int, ...]

    def numbers(self, o: int, k: int) -> float:
        """How many numbers a sample takes."""
        values, program = self.graph.program.values, self.graph.program
        held = sum(
            u.batch * u.all_positions * (u.inner + o * u.outer) for _, _, u in self.uses
        ) + o * sum(math.prod(values[program.inputs[i]].shape) for i in self.direct)
        step = [
            u.batch * _together(u) * (o * u.inner if _forms_blocks(u, o, k) else u.all_positions * k)
            for _, _, u in self.uses
        ]  # fmt: skip
        return (
            count_kept_numbers(self.graph) * (1.0 + min(o, 4)) + held + max(step, default=0) + o * k
        )


@lru_cache(maxsize=64)
def _ways(f: Model, params: Signature, x: Signature, chosen: Selection) -> _Ways:
    whole = trace(f, params.structs(), x.structs(), dtype=params.leaves[0][1], whole=True)
    graph = whole.with_needed_parts()
    program = graph.program
    if len(program.nodes) > MOST_NODES:
        return _Ways(graph, (), chosen.leaves)
    found = leaves(program, len(graph.parameters))
    uses, direct = [], []
    for i in chosen.leaves:
        how = entering(program, found, (i,))
        rows = find_lookup(program, found[i]) if how.direct else None
        mine = [rows] if rows is not None else [use for _, use in how.uses]
        uses += [(i, number, use) for number, use in enumerate(mine)]
        if not mine and found[i].why != NOT_USED:
            direct.append(i)
    return _Ways(graph, tuple(uses), tuple(direct))


def _together(use: Use) -> int:
    """How many outer rows of the projection are drawn at once."""
    return max(1, min(use.outer, _TOGETHER // max(1, use.batch * use.inner)))


def _forms_blocks(use: Use, o: int, k: int) -> bool:
    """Whether Σ_t d_t ⊗ a_t first takes fewer products than projecting every a_t."""
    T, inner = use.all_positions, use.inner
    return not use.is_lookup and o * inner * (T + k) < T * k * (inner + o)


@compiled("ways", "k")
def _project(ways: _Ways, k: int, params: Any, x: Any, key: Any) -> Any:
    """JP at some samples, (n·o, k)."""
    uses = [use for _, _, use in ways.uses]
    found = jax.vmap(lambda sample: factors(ways.graph, uses, ways.direct, params, sample))(x)
    o = ways.graph.outputs
    total = jnp.zeros((len(found.samples), o, k), found.samples.dtype)
    for (leaf, number, use), a, d in zip(ways.uses, found.inputs, found.cotangents, strict=True):
        mine = jax.random.fold_in(jax.random.fold_in(key, leaf), number)
        total = _add_use(total, use, a, d, mine)
    for leaf, J in zip(ways.direct, found.jacobians, strict=True):
        mine = jax.random.fold_in(jax.random.fold_in(key, leaf), 0)
        total = _add_leaf(total, J, mine)
    return total.reshape(-1, k) / math.sqrt(k)


def _add_use(total: Any, use: Use, a: Any, d: Any, key: Any) -> Any:
    """Plus Σ_{b,t,c,i} d[o, b, t, c] a[b, t, i] P[b, c, i], some outer rows c after the other."""
    _, o, k = total.shape

    def part(c: Any, d: Any) -> Any:
        P = _signs(key, c, use.batch * use.inner, k, total.dtype)
        P = P.reshape(len(c), use.batch, use.inner, k)
        if use.is_lookup:
            at = a[..., 0]
            rows = jnp.where((at >= 0)[..., None, None], jnp.moveaxis(P[:, 0], 0, 1)[at], 0.0)
            return jnp.einsum("nobtc,nbtck->nok", d, rows)
        if _forms_blocks(use, o, k):
            return jnp.einsum("nobci,cbik->nok", jnp.einsum("nobtc,nbti->nobci", d, a), P)
        return jnp.einsum("nobtc,nbtck->nok", d, jnp.einsum("nbti,cbik->nbtck", a, P))

    return _sum_groups(total, d, _together(use), part)


def _add_leaf(total: Any, J: Any, key: Any) -> Any:
    """Plus the Jacobian of a leaf times its rows of P."""
    k = total.shape[-1]

    def part(c: Any, J: Any) -> Any:
        return J @ _signs(key, c, 1, k, J.dtype)[:, 0]

    return _sum_groups(total, J, min(J.shape[-1], _TOGETHER), part)


def _sum_groups(total: Any, d: Any, together: int, part: Callable[[Any, Any], Any]) -> Any:
    """Plus the `part` of each group of so many entries of d's last axis, padded with zeros."""
    size = d.shape[-1]
    groups = -(-size // together)
    d = jnp.pad(d, [(0, 0)] * (d.ndim - 1) + [(0, groups * together - size)])
    d = jnp.moveaxis(d.reshape(*d.shape[:-1], groups, together), -2, 0)
    at = jnp.arange(groups * together).reshape(groups, together)
    return jax.lax.scan(lambda sum, cd: (sum + part(*cd), None), total, (at, d))[0]


def _signs(key: Any, c: Any, rows: int, k: int, dtype: Any) -> Any:
    """Independent ±1, (len(c), rows, k), those of each c from its own key."""
    words = -(-k // 32)

    def of(one: Any) -> Any:
        bits = jax.random.bits(jax.random.fold_in(key, one), (rows, words), jnp.uint32)
        each = (bits[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
        return 1 - 2 * each.reshape(rows, -1)[:, :k].astype(dtype)

    return jax.vmap(of)(c)
