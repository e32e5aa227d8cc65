"""`riemann` reproduced: Table 1 measured, the examples entry by entry, flows, convergence, the
singular locus.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.runtime.progress import count_steps
from neuromanifold_papers.blocks import Block, run_blocks
from neuromanifold_papers.output import Claim, save_data, save_figure
from neuromanifold_papers.riemann import figures, flows, table
from neuromanifold_papers.riemann.examples import RUNNING, all_examples
from neuromanifold_papers.riemann.findings import all_findings

# Draws per architecture of Table 1, points of the examples, flows per architecture of Thm 7, ReLU
# cases.
SCALES = {"small": (8, 100, 12, 4), "paper": (100, 1000, 100, 50)}
Note = Callable[..., None]


def examples(out: Path, scale: str, note: Note) -> list[Claim]:
    """Examples 15, 16, 17, 19, 20."""
    claims = all_examples(SCALES[scale][1])
    note()
    return claims


def findings(out: Path, scale: str, note: Note) -> list[Claim]:
    """The statements that fail as printed, with exact counterexamples, and their repair."""
    claims = all_findings()
    law = table.corrected_theorem_13(SCALES[scale][0])
    claims.append(
        Claim(
            "Thm 13, repaired",
            "2^{H−1}·(permutations of like layers) tuples; one kernel exactly when "
            "interchangeable filters have equal norms, that is "
            "Σ_{i=l}^{L−1} δ_i = 0",
            f"{law.counts} of {law.cases} counts, {law.kernels} of {law.cases} kernels",
            law.counts == law.kernels == law.cases,
            "our statement, not the paper's",
        )
    )
    note()
    return claims


def table1(out: Path, scale: str, note: Note) -> list[Claim]:
    """Table 1 with the largest kernel distance in every cell."""
    draws = SCALES[scale][0]
    cells = [*table.convolution_cells(draws, note=note), *table.dense_cells(draws, note=note)]
    columns = {
        name: ("cell", [row[name] for row in map(asdict, cells)]) for name in asdict(cells[0])
    }
    columns["measured"] = ("cell", [cell.measured for cell in cells])
    save_data(xr.Dataset(columns, attrs={"title": "riemann, Table 1, measured"}), out, "table1")
    save_figure(figures.table_figure(cells), out, "table1")
    wrong = [cell for cell in cells if not cell.agrees]
    rows = [
        Claim(
            "Table 1",
            f"{cell.architecture}, D = {cell.dimension or '–'}, strides {cell.strides}, shapes "
            f"{cell.shapes}, "
            f"{cell.invariants}: {cell.printed}",
            {
                "independent": cell.measured,
                "largest kernel distance": cell.spread,
                "cases": cell.cases,
                "with several factorisations": cell.several,
                "tuples": [cell.fewest, cell.most],
                "2^(H-1)": cell.expected,
            },
            cell.agrees,
        )
        for cell in cells
    ]
    return [
        Claim(
            "Table 1",
            "as printed",
            f"{len(cells) - len(wrong)} of {len(cells)} cells agree",
            not wrong or "partly",
        ),
        *rows,
    ]


def theorems(out: Path, scale: str, note: Note) -> list[Claim]:
    """Prop 2, dimension, Thm 4 and Cor 6 on drawn cases; Thm 14."""
    rng, draws = np.random.default_rng(4), SCALES[scale][0]
    nets = [net for entry in table.CONVOLUTIONS for net in entry[4]]
    ranks = sum(
        exact_jacobian_rank(net, tuple(rng.integers(-99, 100, s) for s in net.filter_shapes))
        == fs.neuromanifold_dimension(net)
        for net in nets
    )
    strided = [
        net
        for entry in table.CONVOLUTIONS
        if entry[0] == 1 and entry[1] == "all > 1"
        for net in entry[4]
    ]
    smooth = good = total = 0
    worst = scales = 0.0
    for net in strided:
        for _ in range(draws):
            params = tuple(rng.normal(size=s) for s in net.filter_shapes)
            delta, v = 3 * rng.normal(size=net.depth - 1), net.end_to_end(params)
            over = fs.fiber(net, v, delta)
            total += 1
            smooth += bool(fs.is_smooth(net, v))
            good += len(over) == 2 ** (net.depth - 1) and over.kernel_spread < 1e-12
            worst = max(worst, fs.metric(net, v, delta).disagreement)
            scales = max(scales, fs.rescale(net, params, delta).residual)
    gauge = 0.0
    for d, H in ((2, 2), (3, 2), (3, 3)):
        W = rng.normal(size=(d, d))
        first = fs.balanced_factors(W, H)
        for second in fs.level_set_sample(first, 3):
            gauge = max(gauge, fs.gauge_between(first, second).orthogonality)
    note()
    return [
        Claim(
            "Sec 2",
            "dim M = Σ(k_l − 1) + 1 (and Σ size(w_l) − H + 1 for D > 1)",
            f"{ranks} of {len(nets)} architectures (exact rank)",
            ranks == len(nets),
        ),
        Claim(
            "Prop 2, 12",
            "2^{H−1} rescalings for every δ",
            f"δ attained to {scales:.1e} on {total} cases",
            scales < 1e-12,
        ),
        Claim(
            "Thm 4",
            "D = 1, strides > 1: 2^{H−1} tuples over (v, δ), one kernel",
            f"{good} of {total} ({smooth} smooth)",
            good == total,
        ),
        Claim(
            "Lem 5, Cor 6",
            "the pushed-forward metric is K⁻¹ on T_vM",
            f"two ways agree to {worst:.1e} on {total} cases",
            worst < 1e-9,
        ),
        Claim(
            "Thm 14",
            "balanced factorisations form one O(d)^{H−1} orbit",
            f"connecting matrices orthogonal to {gauge:.1e}",
            gauge < 1e-8,
        ),
    ]


def flow(out: Path, scale: str, note: Note) -> list[Claim]:
    """Parameter flow against function-space flow."""
    pairs = flows.flow_pairs(note=note)
    save_figure(figures.flow_figure(pairs), out, "flow")
    data = xr.Dataset(
        {
            "distance": (("pair", "time"), np.stack([p.distance for p in pairs])),
            "theory": ("pair", [p.theory for p in pairs]),
        },
        coords={"pair": [p.name for p in pairs], "time": pairs[0].t},
    )
    save_data(data, out, "flow")
    agree, part = [[p for p in pairs if p.theory == kind] for kind in ("agree", "part")]
    worst, least = (
        max(float(p.distance.max()) for p in agree),
        min(float(p.distance.max()) for p in part),
    )
    drift = max(p.drift for p in pairs)
    return [
        Claim(
            "Thm 4, 13, Eq 6",
            "the flow of v is a Riemannian flow in function space",
            f"largest distance up to t = 5: {worst:.1e} ({len(agree)} networks)",
            worst < 1e-8,
        ),
        Claim(
            "Ex 19, 20",
            "elsewhere two tuples over one (v, δ) part",
            f"they part by {least:.1e} at least ({len(part)} networks)",
            least > 1e-3,
        ),
        Claim("Eq 1, 5", "δ and Δ are conserved", f"largest drift {drift:.1e}", drift < 1e-9),
    ]


def convergence(out: Path, scale: str, note: Note) -> list[Claim]:
    """Theorem 7, Proposition 8 and Lemma 18."""
    found = {str(net): flows.limits(net, SCALES[scale][2], note=note) for net in flows.CONVERGENCE}
    save_figure(figures.convergence_figure(found), out, "convergence")
    names = ("gradient", "size", "regularity", "smooth", "drift")
    columns = {
        n: (("net", "flow"), np.array([[getattr(l, n) for l in ls] for ls in found.values()]))
        for n in names
    }
    save_data(xr.Dataset(columns, coords={"net": list(found)}), out, "convergence")
    everything = [limit for limits in found.values() for limit in limits]
    good = sum(limit.smooth and limit.gradient < 1e-6 for limit in everything)
    outside = [
        limit
        for net in flows.STRIDE_ONE
        for limit in flows.limits(net, SCALES[scale][2], seed=8, note=note)
    ]
    nonzero, singular_ = (
        sum(l.size > 1e-4 for l in outside),
        sum(l.regularity < 1e-4 for l in outside),
    )
    control, rng = flows.control_limit(), np.random.default_rng(18)
    pairings, normals = [], []
    for net in flows.CONVERGENCE[:3]:
        loss = flows.data_loss(net, rng)
        pairings.append(flows.smallest_pairing(net, loss.A @ loss.u.ravel()))
        J = fs.filter_jacobian(net, tuple(rng.normal(size=s) for s in net.filter_shapes))
        normals.append(flows.smallest_pairing(net, np.linalg.svd(J)[0][:, -1]))
    note()
    return [
        Claim(
            "Thm 7, Prop 8",
            "generic data, N ≥ k: flows end at critical points with μ(θ) ≠ 0, smooth in M",
            f"{good} of {len(everything)} flows",
            good == len(everything),
            f"control with all targets zero: ‖v‖ falls to {control.size:.1e} of its start",
        ),
        Claim(
            "Prop 8",
            "strides of one as well: the limit is not zero",
            f"{nonzero} of {len(outside)} flows",
            nonzero == len(outside),
            f"there Thm 7's conclusion fails, as its hypothesis does: {singular_} limits lie "
            "where dμ drops rank",
        ),
        Claim(
            "Lem 18",
            "Au is not orthogonal to the image of dμ, generically",
            f"smallest pairing over θ: {min(pairings):.3f}",
            min(pairings) > 1e-3,
            f"control, a normal of M at some point: {max(normals):.1e}",
        ),
    ]


def singular(out: Path, scale: str, note: Note) -> list[Claim]:
    """The singular locus of the running example, by rank and by number of fibres."""
    v2 = np.linspace(-4, 4, 81)
    over = [
        fs.fiber(RUNNING, np.array([1.0, 0.0, value, 0.0, 1.0]), 0.0, starts=2)
        for value in np.round(v2, 12)
    ]
    counts, spread = (
        np.array([o.factorisations for o in over]),
        np.array([o.kernel_spread for o in over]),
    )
    save_figure(figures.singular_figure(v2, counts, spread), out, "singular")
    save_data(
        xr.Dataset(
            {"factorisations": ("v2", counts), "kernel_distance": ("v2", spread)}, coords={"v2": v2}
        ),
        out,
        "singular",
    )
    expected = np.where(np.abs(np.abs(v2) - 2) < 1e-9, 1, np.where(np.abs(v2) > 2, 2, 0))
    rng, agree, points = np.random.default_rng(16), 0, SCALES[scale][1]
    for _ in range(points):
        params = tuple(rng.integers(-2, 3, s).astype(object) for s in RUNNING.filter_shapes)
        v = RUNNING.end_to_end(params)
        agree += bool(fs.is_smooth(RUNNING, v)) == bool(v[1] or v[3])
    note()
    return [
        Claim(
            "Ex 15, 16",
            "v = (v_0, 0, v_2, 0, v_4): two tuples, one at a rank drop, none inside the "
            "discriminant",
            "as printed along v_0 = v_4 = 1" if (counts == expected).all() else "different",
            bool((counts == expected).all()),
        ),
        Claim(
            "Ex 15",
            "v is smooth exactly when v_1 ≠ 0 or v_3 ≠ 0",
            f"{agree} of {points} integer filters",
            agree == points,
        ),
    ]


def relu(out: Path, scale: str, note: Note) -> list[Claim]:
    """Section 5."""
    r = flows.relu_networks(SCALES[scale][3])
    note()
    return [
        Claim(
            "Sec 5",
            "shallow ReLU CNN: one parameter tuple per function and δ",
            f"{r.same_function} of {r.tuples} linear tuples keep the function, in {r.cases} cases",
            r.same_function == r.cases,
            "on signals with positive first layer the ReLU kernel is the linear one (relative "
            f"distance {r.kernel_on_positive:.1e})",
        ),
        Claim(
            "Sec 5",
            "ReLU MLPs U, V of Ex 20 agree on positive inputs and have different kernels",
            f"outputs {r.mlp_outputs:.1e} apart, kernels {r.mlp_kernels:.3f} apart",
            r.mlp_outputs < 1e-12 and r.mlp_kernels > 0.1,
            f"they agree on all inputs ({r.mlp_everywhere:.1e}): both are x ↦ ReLU(x)",
        ),
    ]


def throughput(out: Path, scale: str, note: Note) -> list[Claim]:
    """Fibres per second on one core."""
    rng = np.random.default_rng(0)
    filters = [
        RUNNING.end_to_end(tuple(rng.normal(size=s) for s in RUNNING.filter_shapes))
        for _ in range(500)
    ]
    start = time.process_time()
    for v in filters:
        fs.fiber(RUNNING, v, 0.5)
    rate = len(filters) / (time.process_time() - start)
    square = LinearConvNet(((3, 3),) * 3, ((1, 1),) * 3)
    seconds = []
    for _ in range(6):
        v = square.end_to_end(tuple(rng.normal(size=s) for s in square.filter_shapes))
        start = time.process_time()
        fs.fiber(square, v, 0.5)
        seconds.append(time.process_time() - start)
    note()
    return [
        Claim(
            "speed",
            "1,000 fibres of sizes (3, 2), strides (2, 1) per second",
            f"{rate:.0f} per second",
            rate >= 1000,
            "processor time",
        ),
        Claim(
            "speed",
            "a D = 2, three-layer 3×3 fibre in under 50 ms",
            f"{1e3 * float(np.median(seconds)):.1f} ms",
            float(np.median(seconds)) < 0.05,
            "processor time, median of 6",
        ),
    ]


PARTS: dict[str, Callable[[Path, str, Note], list[Claim]]] = {
    "examples": examples,
    "findings": findings,
    "table1": table1,
    "theorems": theorems,
    "flow": flow,
    "convergence": convergence,
    "singular": singular,
    "relu": relu,
    "throughput": throughput,
}


def reproduce(
    out: Path,
    *,
    figure: str | None = None,
    scale: str = "small",
    progress: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Runs the study, or the part named `figure`, into `out`: PNG, SVG, NetCDF, and `summary.json`,
    rewritten after every part.

    Parts that `out` already holds are not computed again; `workers` processes, or a Dask
    `scheduler`, compute them side by side.
    """
    if scale not in SCALES:
        raise ValueError(f"`scale` is {scale!r}; use one of {', '.join(SCALES)}.")
    if figure is not None and figure not in PARTS:
        raise ValueError(f"`figure` is {figure!r}; the study has {', '.join(PARTS)}.")
    blocks = [Block(name, partial(_part, name)) for name in PARTS]
    only = None if figure is None else [figure]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks("riemann", blocks, Path(out), scale, **chosen)


def _part(name: str, out: Path, scale: str, progress: bool) -> list[Claim]:
    with count_steps(progress, f"riemann {name}", _steps(name, scale)) as note:
        return PARTS[name](out, scale, note)


def _steps(name: str, scale: str) -> int:
    flows_ = len(flows.CONVERGENCE + flows.STRIDE_ONE) * SCALES[scale][2] + 1
    return {"table1": 2 * len(table.CONVOLUTIONS) + 4, "flow": 8, "convergence": flows_}.get(
        name, 1
    )
