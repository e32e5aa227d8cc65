"""What needs no training: the expansion, the construction, interpolants of rank 1, Example 20.
[bottleneck, Sec. 3, Thm 10, Ex 20]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from neuromanifold.bottleneck import (
    construction_norm,
    cost_expansion,
    folded_interpolant,
    kernel_curvature,
    polyline_interpolant,
)
from neuromanifold.bottleneck.frames import appendix_factors, bottleneck_frames
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold_papers.bottleneck.example20 import example20_excess
from neuromanifold_papers.output import PALETTE, Claim


@dataclass(frozen=True)
class TheoryStudy:
    """How far the sweeps go."""

    folds: tuple[int, ...] = (1, 2, 3, 4, 5)
    depth: int = 60
    polyline: tuple[int, ...] = (8, 16, 32, 64, 128)
    seed: int = 0

    def measure(self) -> xr.Dataset:
        """Every curve of the figure, and the numbers of the claims."""
        rng = np.random.default_rng(self.seed)
        s = np.array([3.0, 1.5, 0.2])
        A = np.linalg.qr(rng.normal(size=(3, 3)))[0] * s
        expansion = cost_expansion(A)
        depths = 2 ** np.arange(2, 15)
        remainder = np.array([expansion.remainder(int(L)) for L in depths])
        positive = np.array([[2.0, 0.5], [0.25, 1.5]])
        built = np.array([construction_norm(positive, int(L)) - 2 * L for L in depths])
        folded = [folded_interpolant(2, q, self.depth) for q in self.folds]
        lines = [polyline_interpolant(rng.uniform(size=(n, 2)), self.depth) for n in self.polyline]
        stretch = (depths - 2) / 2 * depths.astype(float) ** -0.75
        return xr.Dataset(
            {
                "remainder": ("depth", remainder),
                "construction_excess": ("depth", built),
                "example20_excess": (
                    "depth",
                    np.array([example20_excess(int(L), float(L) ** -0.75) for L in depths]),
                ),
                "example20_log_lipschitz": ("depth", stretch),
                **_growth("folded", "folds", folded),
                **_growth("polyline", "points", lines),
            },
            coords={"depth": depths, "folds": list(self.folds), "points": list(self.polyline)},
            attrs={
                "r3": expansion.r3,
                "construction_limit": cost_expansion(positive).r1,
                "interpolant_depth": self.depth,
                "appendix_spent": _appendix_example()[0],
                "appendix_budget": _appendix_example()[1],
                "curvature_constant": _curvature_constant(),
            },
        )


def _growth(name: str, dim: str, found: list[Any]) -> dict[str, tuple[str, np.ndarray]]:
    return {
        f"{name}_{what}": (dim, np.array([value(i) for i in found]))
        for what, value in {
            "size": lambda i: len(i.y),
            "c1": lambda i: i.c1,
            "steepest": lambda i: i.steepest,
            "trace": lambda i: i.trace,
            "theorem": lambda i: i.exponent_side,
        }.items()
    }


def _appendix_example() -> tuple[float, float]:
    net = MLP((1, 2, 1), bias=False)
    params = (Layer(np.array([[0.8], [0.6]])), Layer(np.array([[1.0, 0.0]])))
    x = np.ones((1, 1))
    factors = appendix_factors(net, params, x)
    spent = sum(
        float(np.sum((p.weight - U @ V.T) ** 2)) for p, (U, V) in zip(params, factors, strict=True)
    )
    return spent, bottleneck_frames(net, params, x).budget


def _curvature_constant() -> float:
    return kernel_curvature(
        MLP((1, 1), bias=False), (Layer(np.ones((1, 1))),), np.ones((1, 1))
    ).constant


def slope(x: Any, y: Any) -> float:
    """The exponent of y ~ x^p by least squares of logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def claims(data: xr.Dataset) -> list[Claim]:
    """The paper's claims beside our numbers."""
    n, m = data["folded_size"].values, data["polyline_size"].values
    per_log = np.polyfit(np.log(n), data["folded_c1"].values, 1)[0]
    tail = data.isel(depth=slice(6, None))
    order = slope(tail["depth"], np.abs(tail["remainder"]))
    last = float((data["remainder"] * data["depth"].astype(float) ** 2)[-1])
    return [
        Claim(
            "Sec 3",
            "R(A; L) = L rank A + 2 log|A|₊ + ½‖log₊AᵀA‖²/L + O(L⁻²).",
            {
                "fitted order": order,
                "L² · remainder at the largest depth": last,
                "(4/3) Σ log³ s": data.attrs["r3"],
            },
            bool(abs(order + 2) < 0.01),
            "singular values 3, 1.5, 0.2; L = 4 … 16384",
        ),
        Claim(
            "Thm 3(3)",
            "The construction's norm minus L·rank A tends to 2 log|A|₊.",
            [float(data["construction_excess"][-1]), data.attrs["construction_limit"]],
            bool(
                abs(float(data["construction_excess"][-1]) - data.attrs["construction_limit"])
                < 1e-3
            ),
        ),
        Claim(
            "Thm 6",
            "The appendix proves it with the factors of the doubly projected weights.",
            {"spent": data.attrs["appendix_spent"], "budget": data.attrs["appendix_budget"]},
            False,
            "the theorem is true with other factors; these violate it on (1, 2, 1) with W₁ = "
            "(4/5, 3/5), W₂ = (1, 0)",
        ),
        Claim(
            "P 9",
            "‖∂²Θ(x, x)‖ ≥ 2L‖Jf(x)‖^{2−2/L}.",
            {"constant of f(x) = x, in units of L": data.attrs["curvature_constant"]},
            False,
            "true for ReLU with L instead of 2L, and attained; false for leaky ReLU",
        ),
        Claim(
            "Thm 10",
            "Rank-1 interpolants of a two-dimensional target: ‖Jf‖ ≥ N^{1/2}, c₁ ≥ log N, Tr Θ ≥ "
            "L e^{−c₁} N².",
            {
                "folded: exponent of ‖Jf‖": slope(n, data["folded_steepest"]),
                "folded: c₁ per log N": float(per_log),
                "folded: exponent of Tr Θ": slope(n, data["folded_trace"]),
                "polyline: exponent of ‖Jf‖": slope(m, data["polyline_steepest"]),
                "polyline: exponent of c₁": slope(m, data["polyline_c1"]),
                "polyline: exponent of Tr Θ": slope(m, data["polyline_trace"]),
            },
            bool(
                np.all(data["folded_trace"] >= data["folded_theorem"])
                and np.all(data["polyline_trace"] >= data["polyline_theorem"])
                and np.all(data["folded_c1"] >= np.log(n))
            ),
            f"depth {data.attrs['interpolant_depth']}, balanced scalings",
        ),
        Claim(
            "Ex 20",
            "‖θ‖² = 3L + o(1) while the representations are not uniformly Lipschitz.",
            {
                "‖θ‖² − 3L at L = 64, 1024, 16384": [
                    float(data["example20_excess"].sel(depth=L)) for L in (64, 1024, 16384)
                ],
                "exponent": slope(tail["depth"], tail["example20_excess"]),
            },
            True,
            "ε = L^{−3/4}: the excess falls like 12 L^{−1/2}, the Lipschitz constant is "
            "exp((L−2)L^{−3/4}/2)",
        ),
    ]


def draw(data: xr.Dataset) -> Any:
    """Remainder of the expansion; growth of the interpolants; Example 20."""
    import matplotlib.pyplot as plt

    figure, (a, b, c) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    depth = data["depth"].values
    a.loglog(
        depth,
        np.abs(data["remainder"]),
        "o-",
        color=PALETTE[0],
        ms=3,
        label="|remainder| of the expansion",
    )
    a.loglog(
        depth,
        abs(data.attrs["r3"]) / depth**2.0,
        "--",
        color="0.4",
        lw=1,
        label="(4/3)|Σ log³ s| / L²",
    )
    gap = np.abs(data["construction_excess"] - data.attrs["construction_limit"])
    a.loglog(
        depth, gap, "s-", color=PALETTE[1], ms=3, label="construction: ‖θ‖² − kL minus its limit"
    )
    a.set(xlabel="depth L (layers)", ylabel="difference")
    a.legend(fontsize=7)
    for name, colour, marker in (("folded", PALETTE[0], "o"), ("polyline", PALETTE[1], "s")):
        n = data[f"{name}_size"].values
        b.loglog(n, data[f"{name}_trace"], f"{marker}-", color=colour, ms=3, label=f"{name}: Tr Θ")
        b.loglog(
            n, data[f"{name}_c1"], f"{marker}:", color=colour, ms=3, label=f"{name}: c₁ = ‖θ‖² − L"
        )
    b.loglog(
        data["folded_size"],
        np.log(data["folded_size"]),
        "--",
        color="0.4",
        lw=1,
        label="log N, the least c₁",
    )
    b.set(
        xlabel="points N",
        ylabel="Tr Θ and c₁",
        ylim=(None, 1e3 * float(data["polyline_trace"].max())),
    )
    b.legend(fontsize=7, ncols=2, loc="upper left")
    c.loglog(depth, data["example20_excess"], "o-", color=PALETTE[0], ms=3, label="‖θ‖² − 3L")
    c.loglog(
        depth,
        np.exp(data["example20_log_lipschitz"]),
        "s-",
        color=PALETTE[1],
        ms=3,
        label="Lipschitz constant of the middle layer",
    )
    c.loglog(depth, 12 * depth**-0.5, "--", color="0.4", lw=1, label="12/√L")
    c.set(xlabel="depth L (layers)", ylabel="Example 20")
    c.legend(fontsize=7)
    return figure
