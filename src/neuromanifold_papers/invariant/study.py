"""`invariant` reproduced: closures against leaves, the lattice, flows beside a leaf,
condensation, recovery.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuromanifold.models.mlp import MLP
from neuromanifold.orbits.lattice import invariant_leaves
from neuromanifold.runtime.progress import count_steps
from neuromanifold_papers.blocks import Block, run_blocks
from neuromanifold_papers.invariant import closure, dynamics, figures
from neuromanifold_papers.invariant import findings as found
from neuromanifold_papers.output import Claim, save_data, save_figure

PAPER = "invariant"
RECOVERED = 0.01
Note = Callable[..., None]

# Inputs of the table and whether it has every leaf, epochs of condensation, the recovery
# experiment, draws of data and loss.
SCALES: dict[str, Any] = {
    "small": ((1,), False, 6000, dynamics.Recovery((3, 4, 5, 6, 8, 12, 24, 48), 5, 4, 20000), 20),
    "paper": (
        (1, 2, 3),
        True,
        20000,
        dynamics.Recovery((2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 96), 20, 10, 20000),
        200,
    ),
}


def findings(out: Path, scale: str, note: Note) -> list[Claim]:
    """Examples, the printed partitions, deep networks."""
    claims = [
        *found.examples(),
        *found.printed_partitions(3),
        *found.deep_networks(SCALES[scale][4]),
    ]
    note()
    return claims


def table(out: Path, scale: str, note: Note) -> list[Claim]:
    """Figure 1: the dimension of the Lie closure against that of the leaf."""
    inputs, every, *_ = SCALES[scale]
    cases = closure.cases(4, inputs, every=every, note=note)
    columns = {name: ("case", [asdict(case)[name] for case in cases]) for name in asdict(cases[0])}
    save_data(
        xr.Dataset(columns, attrs={"title": "closure and leaf dimensions of two-layer networks"}),
        out,
        "closure",
    )
    save_figure(figures.closure_figure(cases), out, "closure")
    return [
        *(_equal(family, cases) for family in ("generic", "generic odd")),
        *_smaller(cases),
        _depth(cases),
    ]


def _of(family: str, cases: list[closure.Case]) -> list[closure.Case]:
    return [case for case in cases if case.family == family]


def _equal(family: str, cases: list[closure.Case]) -> Claim:
    chosen = _of(family, cases)
    equal = sum(case.leaf == case.closure for case in chosen)
    return Claim(
        "Cor 5.3, Thm 5.1",
        f"{family} activations: dim Lie_θ is the dimension of the leaf, at every θ",
        f"{equal} of {len(chosen)} points, {sum(case.certified for case in chosen)} certified, "
        f"{sum(case.point != 'generic' for case in chosen)} of them degenerate or with zero "
        "neurons",
        equal == len(chosen),
    )


def _smaller(cases: list[closure.Case]) -> list[Claim]:
    """Outside the two classes of Definition 5.2 the closure is smaller where neurons are at
    zero.
    """
    even, vanishing, polynomial = (
        _of(name, cases) for name in ("even", "σ(0) = 0 only", "polynomial")
    )
    below = [case for case in even if case.closure < case.leaf]
    at_zero = [case for case in even if case.blocks.count("0·") >= 2]
    frozen = [case for case in vanishing if "zero" in case.point]
    plain = [c for c in polynomial if c.point == "generic" and c.leaf == (c.inputs + 1) * c.neurons]
    lost = sum(case.leaf - case.closure == _zero_dimensions(case) for case in frozen)
    return [
        Claim(
            "beyond Thm 5.1, cos",
            "even σ: closure smaller than the leaf exactly where two blocks have w = 0, whose "
            "outgoing weights move together",
            f"{len(below)} smaller, {len(at_zero)} with two such blocks, of {len(even)}",
            below == at_zero,
            "our statement; the finite group is not all the structure there is",
        ),
        Claim(
            "Thm 4.2 (iii), silu, gelu",
            "σ(0) = 0: zero neurons are frozen, d + 1 dimensions for their block",
            f"{lost} of {len(frozen)} points with zero neurons; "
            f"{sum(c.leaf == c.closure for c in vanishing if 'zero' not in c.point)} of "
            f"{len(vanishing) - len(frozen)} others equal",
            lost == len(frozen),
        ),
        Claim(
            "Def 5.2",
            "polynomials are excepted with reason",
            f"closure smaller than the leaf at {sum(c.closure < c.leaf for c in polynomial)} of "
            f"{len(polynomial)} points, "
            f"at {sum(c.closure < c.leaf for c in plain)} of {len(plain)} generic ones of the "
            "largest leaf",
            all(case.closure < case.leaf for case in plain),
            "with one input, power(d) networks are one function: a closure of dimension 1 or 0",
        ),
    ]


def _zero_dimensions(case: closure.Case) -> int:
    return case.inputs + 1


def _depth(cases: list[closure.Case]) -> Claim:
    odd = {
        case.neurons: case.depth
        for case in cases
        if case.activation == "tanh" and case.point == "all w = 0" and case.inputs == 1
    }
    plain = max(case.depth for case in _of("generic odd", cases) if case.point == "generic")
    return Claim(
        "Cor 5.2",
        "degenerate points need deeper brackets",
        {"tanh, all w = 0, by m": odd, "deepest at generic points": plain},
        max(odd.values()) > plain,
    )


def lattice(out: Path, scale: str, note: Note) -> list[Claim]:
    """Figure 2: the leaves of three neurons, ordered."""
    lattices = [invariant_leaves(MLP((1, 3, 1), name, bias=False)) for name in ("exp", "tanh")]
    save_figure(figures.lattice_figure(lattices), out, "lattice")
    gaps = [int(x.dimensions[j] - x.dimensions[i]) for x in lattices for i, j in x.covers]
    save_data(
        xr.Dataset(
            {
                f"{x.net.activation[0]}_{name}": ((f"{x.net.activation[0]}_{axis}", *more), values)
                for x in lattices
                for name, axis, more, values in (
                    ("leaf", "leaf", (), [str(leaf) for leaf in x]),
                    ("dimension", "leaf", (), x.dimensions),
                    ("covers", "edge", ("end",), np.array(x.covers)),
                )
            }
        ),
        out,
        "lattice",
    )
    note()
    return [
        Claim(
            "Cor 5.4",
            "leaves are connected: what is taken out of each has codimension 2 or more",
            f"smallest codimension over {len(gaps)} covering pairs: {min(gaps)}",
            min(gaps) >= 2,
            "for even σ and one input it is 1 (w = 0), and such leaves fall into two pieces",
        )
    ]


def beside(out: Path, scale: str, note: Note) -> list[Claim]:
    """Figure 3: distance from a leaf over time, from on it, near it and off it."""
    data = dynamics.beside_a_leaf(1600.0, (0.0, 1e-8, 1e-4, 1e-2, 1.0))
    save_data(data, out, "beside")
    save_figure(figures.beside_figure(data), out, "beside")
    left = dynamics.time_within(data, 0.1)
    (rate, _), (alone, amplitude) = dynamics.growth(data, 1e-8), dynamics.growth(data, 0.0)
    note()
    return [
        Claim(
            "Sec 3.1 (ii)",
            "the closer to a SIM, the longer near it",
            {
                "time to distance 0.1": {
                    f"{o:g}": float(t) for o, t in zip(data.offset.values, left, strict=True)
                }
            },
            bool((np.diff(left[1:]) < 0).all()),
            "the leaf repels here: the time grows with the logarithm of 1/offset. A first choice "
            "of network and target (four "
            "neurons in two pairs) showed hardly any repulsion up to t = 1000",
        ),
        Claim(
            "Sec 3.1 (ii)",
            "on the SIM for infinite time",
            {
                "leaves at": float(left[0]),
                "rate": alone,
                "rate from 1e-8": rate,
                "amplitude of the departure": amplitude,
            },
            "partly" if abs(alone / rate - 1) < 0.01 and amplitude < np.finfo(float).eps else False,
            "in double precision the start on the leaf does leave: rounding (amplitude below "
            "2.2e-16) grows at the rate "
            "of any other offset. Invariance is exact, and unstable",
        ),
    ]


def condensing(out: Path, scale: str, note: Note) -> list[Claim]:
    """Figure 4: neurons condense from small initialisation."""
    epochs = SCALES[scale][2]
    history = dynamics.condensing(epochs, epochs // 120)
    save_data(history, out, "condensation")
    save_figure(figures.condensing_figure(history), out, "condensation")
    widths = {
        str(run): history.effective_width.sel(run=run).values[:, 0] for run in history.run.values
    }
    note()
    return [
        Claim(
            "Sec 1",
            "small initialisation: neurons condense to few directions while training",
            {
                "effective width, least and last, small": [
                    int(widths["small"].min()),
                    int(widths["small"][-1]),
                ],
                "effective width, least and last, ordinary": [
                    int(widths["ordinary"].min()),
                    int(widths["ordinary"][-1]),
                ],
                "loss at the end": {
                    str(r): float(history.loss.sel(run=r)[-1]) for r in history.run.values
                },
            },
            bool(widths["small"][-1] * 2 < widths["ordinary"][-1]),
            "40 tanh neurons, a target of two",
        )
    ]


def recovery(out: Path, scale: str, note: Note) -> list[Claim]:
    """Figure 5: a target is recovered from fewer samples than parameters."""
    data = dynamics.recovery(SCALES[scale][3], note)
    save_data(data, out, "recovery")
    save_figure(figures.recovery_figure(data, RECOVERED), out, "recovery")
    rate = (data.error < RECOVERED).mean("trial")
    between = data.samples.values[
        (data.samples > data.attrs["leaf"]) & (data.samples < data.attrs["parameters"])
    ]
    rates = {
        str(s): {int(n): float(rate.sel(start=s, samples=n)) for n in data.samples.values}
        for s in data.start.values
    }
    at_leaf = rates["on the leaf"].get(int(data.attrs["leaf"]), 0.0)
    lost = dynamics.failures(data, "on the leaf", int(data.attrs["leaf"]), RECOVERED)
    good = min(rates["on the leaf"][int(n)] for n in between)
    return [
        Claim(
            "Sec 3.1 (i)",
            "a target on a SIM of dimension d < M can be recovered from d ≤ n < M samples, "
            "starting on the SIM",
            {"fraction recovered": rates, "d": data.attrs["leaf"], "M": data.attrs["parameters"]},
            True if good > 0.5 and at_leaf > 0.5 else "partly" if good > 0.5 else False,
            f"with n = d samples {at_leaf:.0%} of the trials; the others: {lost}. One target, "
            f"{data.sizes['trial']} trials a point. "
            "With 4,000 epochs, our first choice, n = d gave 40 % and n = d + 1 75 %, mostly "
            "because training had not ended",
        )
    ]


PARTS: dict[str, Callable[[Path, str, Note], list[Claim]]] = {
    "findings": findings,
    "closure": table,
    "lattice": lattice,
    "beside": beside,
    "condensation": condensing,
    "recovery": recovery,
}
_NUMBERED = dict(enumerate(list(PARTS)[1:], start=1))


def reproduce(
    out: Path,
    *,
    figure: int | str | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Runs the study, or one figure (1 to 5, or a part's name), into `out`: PNG, SVG, NetCDF, and
    `summary.json`.

    The summary is rewritten after every part, and parts that `out` already holds are not computed
    again. `scale="small"` takes about two minutes on two cores; `workers` processes, or a Dask
    `scheduler`, compute the parts side by side.
    """
    if scale not in SCALES:
        raise ValueError(f"`scale` is {scale!r}; use one of {', '.join(SCALES)}.")
    name = _NUMBERED.get(figure, "") if isinstance(figure, int) else figure
    if name is not None and name not in PARTS:
        raise ValueError(
            f"`figure` is {figure!r}; the study has the figures 1 to 5 and the parts "
            f"{', '.join(PARTS)}."
        )
    blocks = [Block(part, partial(_part, part)) for part in PARTS]
    only = None if name is None else [name]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks(PAPER, blocks, Path(out), scale, **chosen)


def _part(name: str, out: Path, scale: str, progress: bool) -> list[Claim]:
    steps = {"closure": len(closure.CLASSES), "recovery": len(SCALES[scale][3].samples)}
    with count_steps(progress, f"{PAPER} {name}", steps.get(name, 1)) as note:
        return PARTS[name](out, scale, note)
