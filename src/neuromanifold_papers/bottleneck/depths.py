"""Figure 1: parameter norm against depth, and the spectra of all layers.   [bottleneck, Fig 1]"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from neuromanifold.bottleneck import (
    activation_bound,
    bottleneck_structure,
    norm_bound,
    planarity_bound,
)
from neuromanifold.bottleneck.passage import passage
from neuromanifold_papers.bottleneck.data import LatentTask
from neuromanifold_papers.bottleneck.ridge import RidgeStudy, weight_spectra
from neuromanifold_papers.output import PALETTE, Claim

_RANK_THRESHOLD = 0.1
_FAILED_COST = 0.1
# Two minima of one rank differ by a jump of ‖θ‖² that dwarfs its growth from depth to depth.
_JUMP = 3.0


@dataclass(frozen=True)
class DepthStudy(RidgeStudy):
    """How Figure 1 is run; the paper gives λ = 0.001 for the mean squared error and leaves width
    and samples open.
    """

    task: LatentTask
    depths: tuple[int, ...]
    probed: int = 64

    def measure(self, *, checkpoint: Path | None = None, progress: bool = False) -> xr.Dataset:
        """Train `seeds` networks of every depth; the one with the lowest objective gives the
        figure and the claims.
        """
        x, y = self.task.draw()
        family, _, done = self.trained(x, y, self.depths, (self.task.seed, 1), checkpoint, progress)
        by_seed = done.objective.reshape(self.seeds, -1)
        best = by_seed.argmin(axis=0) * len(self.depths) + np.arange(len(self.depths))
        members = family.members(done.params)
        rows = [
            self._read(net, params, x[: self.probed])
            for net, params in (members[index] for index in best)
        ]
        found = xr.concat(rows, dim=xr.Variable("depth", np.array(self.depths)), join="outer")
        trained = {
            "loss": done.loss,
            "squared_norm": done.squared_norm,
            "objective": done.objective,
            "gradient_norm": done.gradient_norm,
            "adam_gradient_norm": done.adam_gradient_norm,
            "adam_objective": done.adam_objective,
        }
        made = {
            "width": self.width,
            "samples": self.task.samples,
            "ridge": self.ridge,
            "steps": self.steps,
            "polish": self.polish,
            "seeds": self.seeds,
        }
        found = found.assign({name: ("depth", value[best]) for name, value in trained.items()})
        return found.assign(objective_by_seed=(("seed", "depth"), by_seed)).assign_attrs(made)

    def _read(self, net: Any, params: Any, x: np.ndarray) -> xr.Dataset:
        middle = np.linalg.svd(params[net.depth // 2].weight, compute_uv=False)
        rank = int(np.sum(middle > _RANK_THRESHOLD))
        return weight_spectra(params).assign(
            {"middle_rank": rank, **_statements(net, params, x, rank)}
        )


def _statements(net: Any, params: Any, x: np.ndarray, rank: int) -> dict[str, float]:
    """Theorem 6, the norm bound, Theorem 7 and Corollary 8 at the trained network: budgets, excess,
    ratios left/right.

    On the samples where Jf(x) has at least the middle rank; nan where there is none.
    """
    names = (
        "budget",
        "spent",
        "bottleneck_layers",
        "excess_norm",
        "theorem7_ratio",
        "corollary8_ratio",
        "balance_defect",
    )
    x = x[_ranks(passage(net, params, x).jacobian()) >= rank] if rank else x[:0]
    if not len(x):
        return dict.fromkeys(names, float("nan"))
    seen = bottleneck_structure(net, params, x, rank=rank)
    frames = seen.data["frame_residual"].values.sum() + seen.data["bias_norm"].values.sum()
    sides = activation_bound(net, params, x, rank=rank)
    planar = planarity_bound(net, params, x, rank=rank, averaged=False)
    values = (
        seen.budget,
        float(frames),
        float(len(seen.layers)),
        norm_bound(net, params, x).excess,
        float(np.max(sides.left / sides.right)),
        float(planar.ratios.max()),
        seen.balance_defect,
    )
    return dict(zip(names, values, strict=True))


def _ranks(J: np.ndarray) -> np.ndarray:
    """The numerical rank of each matrix."""
    s = np.linalg.svd(J, compute_uv=False)
    return np.sum(s > max(J.shape[1:]) * np.finfo(np.float64).eps * s[:, :1], axis=1)


@dataclass(frozen=True)
class Range:
    """Depths in a row with one middle rank, and the line through their norms: slope ± half-width of
    its 95 % interval.

    `corrected` is the slope a of the fit a·L + b + c/L, which allows for the second correction
    R⁽²⁾/L; it needs five depths.
    """

    rank: int
    depths: tuple[int, ...]
    slope: float
    half_width: float
    corrected: float
    corrected_half_width: float
    objective_slope: float

    @property
    def agrees(self) -> bool:
        """Whether the rank lies within the interval of the slope."""
        return abs(self.slope - self.rank) <= self.half_width

    def __str__(self) -> str:
        ends = f"L = {self.depths[0]}–{self.depths[-1]}"
        line = f"rank {self.rank} at {ends}: slope {self.slope:.3f} ± {self.half_width:.3f}"
        if np.isfinite(self.corrected):
            line += f", with a term 1/L {self.corrected:.3f} ± {self.corrected_half_width:.3f}"
        return f"{line}, of (loss + λ‖θ‖²)/λ {self.objective_slope:.3f}"


def _slope(columns: list[np.ndarray], values: np.ndarray) -> tuple[float, float]:
    """The first coefficient of a least-squares fit and the half-width of its 95 % interval."""
    X = np.stack(columns, axis=1)
    freedom = len(values) - X.shape[1]
    if freedom < 1:
        return float("nan"), float("nan")
    fit = np.linalg.lstsq(X, values, rcond=None)[0]
    variance = np.sum((values - X @ fit) ** 2) / freedom * np.linalg.inv(X.T @ X)[0, 0]
    return float(fit[0]), float(stats.t.ppf(0.975, freedom) * np.sqrt(variance))


def ranges(data: xr.Dataset) -> list[Range]:
    """The ranges of at least three depths with one middle rank, one branch of minima, and a train
    cost below 0.1.

    Where ‖θ‖² jumps by more than three times its median growth, training has changed to another
    branch, whose line is another.
    """
    ranks = np.where(data["loss"].values < _FAILED_COST, data["middle_rank"].values, -1)
    growth = np.abs(np.diff(data["squared_norm"].values) / np.diff(data["depth"].values))
    cuts = np.flatnonzero((np.diff(ranks) != 0) | (growth > _JUMP * np.median(growth))) + 1
    found = []
    for part in np.split(np.arange(len(ranks)), cuts):
        if len(part) >= 3 and ranks[part[0]] > 0:
            L = data["depth"].values[part].astype(float)
            norms, one = data["squared_norm"].values[part], np.ones(len(part))
            energy = data["objective"].values[part] / data.attrs["ridge"]
            found.append(
                Range(
                    int(ranks[part[0]]),
                    tuple(map(int, L)),
                    *_slope([L, one], norms),
                    *(
                        _slope([L, one, 1 / L], norms)
                        if len(part) >= 5
                        else (float("nan"), float("nan"))
                    ),
                    _slope([L, one], energy)[0],
                )
            )
    return found


def _largest(values: np.ndarray) -> float:
    """The largest that is a number; 0 where there is none, and so nothing that exceeds a bound."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def _verdict(fits: list[Range]) -> bool | str:
    """Whether every slope agrees with its rank; "partly" when all do once the term 1/L is
    allowed for.
    """
    if not fits or all(r.agrees for r in fits):
        return bool(fits)
    close = all(r.agrees or abs(r.corrected - r.rank) <= r.corrected_half_width for r in fits)
    return "partly" if close else False


def claims(data: xr.Dataset) -> list[Claim]:
    """The paper's claims about Figure 1 beside what was measured."""
    fits = ranges(data)
    fitted = data["loss"].values < _FAILED_COST
    ranks = data["middle_rank"].values
    falling = bool(np.all(np.diff(ranks[fitted]) <= 0)) if fitted.any() else False
    seen = bool(np.isfinite(data["budget"].values).any())
    ratio = _largest((data["spent"] / data["budget"]).values)
    theorem7, corollary8 = (
        _largest(data[name].values) for name in ("theorem7_ratio", "corollary8_ratio")
    )
    depths, layers = data["depth"].values, data["bottleneck_layers"].values
    widest = max(fits, key=lambda r: len(r.depths)).rank if fits else 0
    grown = layers[fitted & (ranks == widest) & np.isfinite(layers)]
    return [
        Claim(
            "1a",
            "Within a range of depths of one middle rank, ‖θ‖² is affine in the depth with slope "
            "equal to the rank.",
            [str(r) for r in fits],
            _verdict(fits),
            "95 % intervals; the expansion itself bends the line by R⁽²⁾/L, and at finite λ the "
            "function changes with L",
        ),
        Claim(
            "1a",
            "Larger depths lead to smaller middle rank, down to the true rank 2.",
            dict(zip(map(int, depths), map(int, ranks), strict=True)),
            bool(falling and 2 in ranks[fitted]) or ("partly" if falling else False),
            f"singular values of W_⌊L/2⌋ above {_RANK_THRESHOLD}",
        ),
        Claim(
            "1a",
            "Training fails and recovers zero parameters for L > 25.",
            {int(L): round(float(c), 4) for L, c in zip(depths, data["loss"].values, strict=True)},
            bool(np.all(~fitted[depths > 25])) if np.any(depths > 25) else "partly",
            "train cost by depth; deeper networks than 25 only at paper scale",
        ),
        Claim(
            "1b",
            "The bottleneck structure stays the same in a range of depths; only its low-rank "
            "middle grows.",
            {int(L): int(v) for L, v in zip(depths, layers, strict=True) if np.isfinite(v)},
            bool(len(grown) > 1 and np.all(np.diff(grown) >= 0)),
            "layers closer than ½ to a partial isometry of the middle rank",
        ),
        Claim(
            "Thm 6",
            "Σ‖W_l − V_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ c₁ − 2 log|Jf|₊ at trained parameters.",
            f"largest left/right {ratio:.4f}",
            ratio <= 1 if seen else "partly",
            "at the sample with the smallest budget, k = middle rank",
        ),
        Claim(
            "Thm 7, Cor 8",
            "Both sides at trained parameters.",
            {
                "Theorem 7, largest left/right": theorem7,
                "Corollary 8, largest left/right over all p": corollary8,
                "balance defect": _largest(data["balance_defect"].values),
                "gradient norm": float(data["gradient_norm"].max()),
            },
            theorem7 <= 1 and corollary8 <= 1 if seen else "partly",
            "balanced up to the gradient norm of the training",
        ),
    ]


def draw(data: xr.Dataset) -> Any:
    """Norm against depth coloured by middle rank; spectra of all layers at up to four depths."""
    import matplotlib.pyplot as plt

    shown = _four(data)
    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    left = figure.add_subplot(grid[:, :2])
    _draw_norms(left, data)
    for place, depth in zip(((0, 2), (0, 3), (1, 2), (1, 3)), shown, strict=False):
        axes = figure.add_subplot(grid[place])
        at = data.sel(depth=depth)
        values = at["singular_values"].values[:depth]
        axes.plot(np.arange(1, depth + 1), values, color=PALETTE[0], lw=0.7, marker=".", ms=2.5)
        axes.set_title(f"L = {depth}, middle rank {int(at['middle_rank'])}", fontsize=9)
        axes.set(xlabel="layer", ylabel="singular values of W", ylim=(0, None))
    return figure


def _four(data: xr.Dataset) -> list[int]:
    depths = data["depth"].values
    at = np.unique(np.linspace(0, len(depths) - 1, 4).round().astype(int))
    return [int(d) for d in depths[at]]


def _draw_norms(axes: Any, data: xr.Dataset) -> None:
    ranks, depths, norms = (data[name].values for name in ("middle_rank", "depth", "squared_norm"))
    fitted = data["loss"].values < _FAILED_COST
    for index, rank in enumerate(sorted(set(ranks.tolist()))):
        colour = PALETTE[index % len(PALETTE)]
        for chosen, marker in ((fitted, "o"), (~fitted, "x")):
            at = (ranks == rank) & chosen
            if at.any():
                label = f"middle rank {rank}" + ("" if marker == "o" else ", train cost above 0.1")
                axes.plot(depths[at], norms[at], marker, color=colour, label=label)
    for found in ranges(data):
        _draw_fit(axes, found, depths, norms)
    axes.set(xlabel="depth L (layers)", ylabel="squared parameter norm ‖θ‖²", ylim=(0, None))
    axes.legend(fontsize=8, loc="lower right")
    axes.set_title(
        f"width {data.attrs['width']}, {data.attrs['samples']} samples, λ = "
        f"{data.attrs['ridge']:g}",
        fontsize=9,
    )


def _draw_fit(axes: Any, found: Range, depths: np.ndarray, norms: np.ndarray) -> None:
    """The fitted line, the curve with the term 1/L where there is one, and both slopes beside
    them.
    """
    at = np.isin(depths, found.depths)
    L, one = depths[at].astype(float), np.ones(at.sum())
    shapes = [("", [L, one], "-", found.slope, found.half_width)]
    if np.isfinite(found.corrected):
        shapes.append(
            (" with 1/L", [L, one, 1 / L], ":", found.corrected, found.corrected_half_width)
        )
    for _, columns, style, _, _ in shapes:
        X = np.stack(columns, axis=1)
        axes.plot(L, X @ np.linalg.lstsq(X, norms[at], rcond=None)[0], style, color="0.3", lw=1.2)
    text = "\n".join(f"slope{name} {slope:.2f} ± {half:.2f}" for name, _, _, slope, half in shapes)
    axes.annotate(
        text,
        (L.mean(), norms[at].mean()),
        (-6, 8),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
