"""Does this network have a bottleneck, of which rank, in which layers?   [bottleneck, Sec. 4]"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from neuromanifold.bottleneck.balance import balance_defect
from neuromanifold.bottleneck.bounds import schatten_cost
from neuromanifold.bottleneck.frames import closest_isometries, frames_at
from neuromanifold.bottleneck.kernel import trace_by_layer
from neuromanifold.bottleneck.passage import Passage, passage, require_contraction
from neuromanifold.models.arguments import Samples
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Result, follows


@dataclass(frozen=True, repr=False)
class BottleneckStructure(Result):
    """The layers of a network on a sample, as Theorem 6 sees them; `print` it, `.plot()` it, or
    take its `.data`.

    A layer is in the bottleneck of rank k when ‖W_l − UVᵀ‖_F < `threshold` for the closest partial
    isometry of rank k: then k of its singular values exceed 1 − threshold and the others lie below
    threshold. At threshold ½ at most 4·budget layers are not. `data` holds, by layer: singular
    values of weights and pre-activations, `layer_rank` (singular values above the threshold) with
    its `gap`, `residual` (squared distance to the closest partial isometry), `frame_residual` and
    `share` of the budget at the point `sample`, squared norms of weights and biases, mean squared
    activation norm, and the two traces.
    """

    net: MLP
    rank: int
    threshold: float
    sample: int
    budget: float
    squared_norm: float
    norm_bound: float
    balance_defect: float
    data: Any

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers in the bottleneck, counted from 1."""
        inside = np.asarray(self.data["in_bottleneck"].values, bool)
        return tuple(int(l) for l in self.data["layer"].values[inside])

    @property
    def excess(self) -> float:
        """‖θ‖² beyond the largest Jacobian bound of the sample."""
        return self.squared_norm - self.norm_bound

    def __str__(self) -> str:
        d = self.data
        known = bool(np.isfinite(self.budget))
        budget = (
            f"budget {self.budget:.4g}"
            if known
            else f"no budget: every Jf(x) has a rank below {self.rank}"
        )
        lines = [
            f"{len(self.layers)} of {self.net.depth} layers in a bottleneck of rank {self.rank} "
            f"(threshold {self.threshold:g})",
            f"‖θ‖² = {self.squared_norm:.6g}, at least {self.norm_bound:.6g} for this function; "
            f"{budget}; "
            f"balance defect {self.balance_defect:.1e}",
            f"layer  rank     gap  residual{'     share' * known}   ‖α_{{l-1}}‖²   trace",
        ]
        for l in d["layer"].values:
            at = d.sel(layer=l)
            mark = "*" if bool(at["in_bottleneck"]) else " "
            share = f"{float(at['share']):10.3g}" if known else ""
            lines.append(
                f"{int(l):4d}{mark} {int(at['layer_rank']):5d} {float(at['gap']):7.2g} "
                f"{float(at['residual']):9.3g}{share} {float(at['activation_norm']):12.4g} "
                f"{float(at['trace']):7.3g}"
            )
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the singular values of every weight matrix over the layers, those in the bottleneck
        shaded; returns the axes.
        """
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
        layers = self.data["layer"].values
        values = self.data["singular_values"].values
        for l in self.layers:
            axes.axvspan(l - 0.5, l + 0.5, color="#56B4E9", alpha=0.2, lw=0)
        axes.plot(layers, values, color="#0072B2", marker=".", lw=0.8, ms=3)
        axes.axhline(1.0, color="0.4", lw=0.8, ls=":")
        axes.set(
            xlabel="layer",
            ylabel="singular values of the weights",
            xlim=(0.5, layers[-1] + 0.5),
            ylim=(0, None),
        )
        axes.set_title(
            f"bottleneck of rank {self.rank} in {len(self.layers)} of {self.net.depth} layers",
            fontsize=10,
        )
        return axes


@follows
def bottleneck_structure(
    net: MLP, params: Params, x: Samples, *, rank: int | None = None, threshold: float = 0.5
) -> BottleneckStructure:
    """Return the bottleneck structure of an MLP on a sample.   [bottleneck, Thm 6, Thm 7, Cor 8]

    `rank=None` takes the rank that most layers share (singular values above `threshold`). The
    budget is the smallest over the sample of ‖θ‖² − kL − 2 log(s_1⋯s_k) with s the singular values
    of Jf(x); it is infinite when every Jf(x) has a rank below k.

    >>> from neuromanifold.bottleneck import bottleneck_structure
    >>> net = nm.MLP((2, 2, 2, 2), bias=False)
    >>> found = bottleneck_structure(net, (nm.Layer(np.eye(2)),) * 3, np.ones((1, 2)))
    >>> found.rank, found.layers, found.budget
    (2, (1, 2, 3), 0.0)
    """
    if not 0 < threshold < 1:
        raise ValueError(f"`threshold` is {threshold}; pass a number between 0 and 1.")
    through = passage(net, params, x)
    require_contraction(through)
    spectra = [np.linalg.svd(W, compute_uv=False) for W in through.weights]
    ranks = np.array([int(np.sum(s > threshold)) for s in spectra])
    k = int(np.bincount(ranks).argmax()) if rank is None else _check_rank(rank, net)
    sample, budget, norm_bound = _best_point(through, k)
    return BottleneckStructure(
        net=net,
        rank=k,
        threshold=threshold,
        sample=sample,
        budget=budget,
        squared_norm=float(through.squared_norms.sum()),
        norm_bound=norm_bound,
        balance_defect=balance_defect(net, params),
        data=_by_layer(net, through, spectra, ranks, k, threshold, sample, budget),
    )


def _check_rank(rank: Any, net: MLP) -> int:
    if isinstance(rank, bool) or rank != int(rank) or not 0 <= rank <= min(net.widths):
        raise ValueError(
            f"`rank` is {rank!r}; pass a whole number from 0 to the smallest width "
            f"{min(net.widths)}."
        )
    return int(rank)


def _best_point(through: Passage, k: int) -> tuple[int, float, float]:
    """The sample with the smallest budget, that budget, and the largest Jacobian bound on the
    norm.
    """
    J = through.jacobian()
    s = np.linalg.svd(J, compute_uv=False)
    tiny = max(J.shape[1:]) * np.finfo(np.float64).eps
    usable = np.sum(s > tiny * s[:, :1], axis=1) >= k
    logs = np.where(usable, np.log(np.where(s[:, :k] > 0, s[:, :k], 1.0)).sum(axis=1), -np.inf)
    sample = int(np.argmax(logs))
    budget = float(through.squared_norms.sum() - k * through.depth - 2 * logs[sample])
    return sample, budget, float(schatten_cost(J, through.depth).max())


def _gaps(spectra: list[np.ndarray], ranks: Int[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """The smallest singular value kept over the largest dropped; infinite when nothing was
    dropped.
    """
    padded = [np.concatenate([[np.inf], s, [0.0]]) for s in spectra]
    return np.array(
        [
            s[r] / s[r + 1] if r and s[r + 1] > 0 else np.inf
            for s, r in zip(padded, ranks, strict=True)
        ]
    )


def _stack_rows(spectra: list[np.ndarray]) -> Float[np.ndarray, "L k"]:
    """Rows of different length side by side, filled with nan."""
    width = max(len(s) for s in spectra)
    return np.stack([np.concatenate([s, np.full(width - len(s), np.nan)]) for s in spectra])


def _by_layer(
    net: MLP,
    through: Passage,
    spectra: list[np.ndarray],
    ranks: Int[np.ndarray, " L"],
    k: int,
    threshold: float,
    sample: int,
    budget: float,
) -> Any:
    import xarray as xr

    L, n = through.depth, len(through.activations[0])
    residual = closest_isometries(through, k)
    inside: Bool[np.ndarray, " L"] = residual < threshold**2
    frames = frames_at(through.at(sample), k, residual) if np.isfinite(budget) else None
    nothing = np.full(L, np.nan)
    by_layer = {
        "layer_rank": ranks,
        "gap": _gaps(spectra, ranks),
        "residual": residual,
        "in_bottleneck": inside,
        "frame_residual": nothing if frames is None else frames.residuals,
        "share": nothing if frames is None else frames.shares,
        "weight_norm": through.squared_norms - through.bias_norms,
        "bias_norm": through.bias_norms,
        "activation_norm": np.array([np.mean(np.sum(a**2, axis=1)) for a in through.activations]),
        "trace": trace_by_layer(through, net.weight_scales, net.bias).mean(axis=0),
        "trace_without_bias": trace_by_layer(through, net.weight_scales, False).mean(axis=0),
    }
    hidden = [np.linalg.svd(z, compute_uv=False) / np.sqrt(n) for z in through.preactivations]
    values, planar = _stack_rows(spectra), _stack_rows(hidden)
    return xr.Dataset(
        {name: ("layer", value) for name, value in by_layer.items()}
        | {
            "singular_values": (("layer", "index"), values),
            "preactivation_singular_values": (("layer", "direction"), planar),
        },
        coords={"layer": np.arange(1, L + 1)},
        attrs={"rank": k, "threshold": threshold, "sample": sample, "budget": budget},
    )
