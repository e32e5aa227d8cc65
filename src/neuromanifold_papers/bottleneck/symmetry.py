"""Figure 2: a deep network with ridge learns the rotation symmetry of gradient descent.
[bottleneck, Sec. 5, Fig 2]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuromanifold.bottleneck.passage import passage
from neuromanifold.models.mlp import MLP, Params
from neuromanifold_papers.bottleneck.data import DescentTask
from neuromanifold_papers.bottleneck.ridge import RidgeStudy, weight_spectra
from neuromanifold_papers.output import PALETTE, Claim

_OUTLIER = 0.5


@dataclass(frozen=True)
class SymmetryStudy(RidgeStudy):
    """How Figure 2 is run; the paper gives L = 25, width 200 and λ = 0.0002."""

    task: DescentTask
    depth: int
    shown_layer: int = 6
    orbit_layer: int = 2

    def measure(self, *, checkpoint: Path | None = None, progress: bool = False) -> xr.Dataset:
        """Train `seeds` networks and look at the one with the lowest objective."""
        x, y = self.task.draw()
        keys = (self.task.seed, 2)
        family, start, done = self.trained(x, y, (self.depth,), keys, checkpoint, progress)
        best = int(np.argmin(done.objective))
        net, params = family.members(done.params)[best]
        untrained = family.members(start)[best][1]
        found = xr.merge(
            [
                weight_spectra(params),
                self._plane(net, params),
                self._orbits(net, params, untrained),
            ]
        )
        trained = {
            "loss": float(done.loss[best]),
            "squared_norm": float(done.squared_norm[best]),
            "gradient_norm": float(done.gradient_norm[best]),
            "adam_gradient_norm": float(done.adam_gradient_norm[best]),
        }
        made = {
            "net_depth": self.depth,
            "width": self.width,
            "samples": self.task.samples,
            "ridge": self.ridge,
            "dimension": self.task.dimension,
            "steps": self.steps,
            "shown_layer": self.shown_layer,
            "orbit_layer": self.orbit_layer,
        }
        return found.assign_attrs(trained | made)

    def _plane(self, net: MLP, params: Params) -> xr.Dataset:
        """The pre-activations of the shown layer along unseen paths, in the plane of their first
        two directions.
        """
        paths, _ = self.task.run(self.task.starts(40, 3))
        points = paths.reshape(-1, self.task.dimension)
        z = passage(net, params, points).preactivations[self.shown_layer - 1]
        z = z - z.mean(axis=0)
        _, s, Vt = np.linalg.svd(z, full_matrices=False)
        plane = z @ Vt[:2].T
        u = self.task.statistics(points)
        raw = points - points.mean(axis=0)
        control = raw @ np.linalg.svd(raw, full_matrices=False)[2][:2].T
        shape = paths.shape[:2]
        return xr.Dataset(
            {
                "plane": (("time", "path", "axis"), plane.reshape(*shape, 2)),
                "statistics": (("time", "path", "statistic"), u.reshape(*shape, 2)),
                "planar_fraction": float(np.sum(s[:2] ** 2) / np.sum(s**2)),
                "recovered": ("statistic", _explained(plane, u)),
                "recovered_from_input_plane": ("statistic", _explained(control, u)),
            }
        )

    def _orbits(self, net: MLP, params: Params, untrained: Params) -> xr.Dataset:
        """Distances ‖α(x₀) − α(x)‖ on a plane across w, and how much of the variance across it
        stays within the orbits.
        """
        w = self.task.axis
        frame = np.linalg.svd(np.eye(len(w)) - np.outer(w, w))[0][:, :2]
        line = np.linspace(-1.4, 1.4, 57)
        grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
        anchor = np.array([[0.7, 0.0]])
        a = _representation(net, params, np.concatenate([anchor, grid]) @ frame.T, self.orbit_layer)
        distance = np.linalg.norm(a[1:] - a[0], axis=1).reshape(len(line), len(line))
        return xr.Dataset(
            {
                "distance": (("p", "q"), distance),
                "within_orbits": self._within(net, params, self.orbit_layer),
                "within_orbits_untrained": self._within(net, untrained, self.orbit_layer),
                "within_orbits_by_layer": (
                    "hidden_layer",
                    np.array([self._within(net, params, l) for l in range(1, min(net.depth, 9))]),
                ),
            },
            coords={"p": line, "q": line},
        )

    def _within(self, net: MLP, params: Params, layer: int) -> float:
        """The share of the variance of α_layer that lies within rotation orbits around w (0:
        collapsed, orbits are points).
        """
        rng = np.random.default_rng(5)
        w, n = self.task.axis, 40
        starts = self.task.starts(n, 4)
        along = (starts @ w)[:, None] * w
        length = np.linalg.norm(starts - along, axis=1)
        turned = rng.normal(size=(32, n, len(w)))
        turned -= (turned @ w)[..., None] * w
        turned *= (length / np.linalg.norm(turned, axis=2))[..., None]
        points = (turned + along).reshape(-1, len(w))
        a = _representation(net, params, points, layer).reshape(32, n, -1)
        within = np.mean(np.sum((a - a.mean(axis=0)) ** 2, axis=2))
        total = np.mean(np.sum((a - a.mean(axis=(0, 1))) ** 2, axis=2))
        return float(within / total)


def _representation(net: MLP, params: Params, x: np.ndarray, layer: int) -> np.ndarray:
    """α_layer, the activations of that hidden layer."""
    return passage(net, params, x).activations[layer]


def _explained(plane: np.ndarray, u: np.ndarray, degree: int = 5) -> np.ndarray:
    """R² of each statistic as a polynomial of the two coordinates."""
    s, t = (plane / np.abs(plane).max(axis=0)).T
    terms = np.stack(
        [s**i * t**j for i in range(degree + 1) for j in range(degree + 1 - i)], axis=1
    )
    fit = terms @ np.linalg.lstsq(terms, u, rcond=None)[0]
    return 1 - np.sum((u - fit) ** 2, axis=0) / np.sum((u - u.mean(axis=0)) ** 2, axis=0)


def outliers(data: xr.Dataset) -> np.ndarray:
    """How many singular values of each layer exceed ½."""
    return np.nansum(data["singular_values"].values > _OUTLIER, axis=1).astype(int)


def claims(data: xr.Dataset) -> list[Claim]:
    """The paper's claims about Figure 2 beside what was measured."""
    counts = outliers(data)
    middle = counts[len(counts) // 3 : -2] if len(counts) > 6 else counts[2:-2]
    recovered, control = data["recovered"].values, data["recovered_from_input_plane"].values
    within, before = float(data["within_orbits"]), float(data["within_orbits_untrained"])
    return [
        Claim(
            "2a",
            "Two outlying singular values in the bottleneck: the network finds the true rank 2.",
            {int(l): int(c) for l, c in zip(data["layer"].values, counts, strict=True)},
            bool(np.all(middle == 2)) or ("partly" if np.any(middle == 2) else False),
            f"singular values above {_OUTLIER} by layer; train cost {data.attrs['loss']:.4f}, "
            f"‖θ‖² {data.attrs['squared_norm']:.1f}, gradient norm "
            f"{data.attrs['gradient_norm']:.1e}",
        ),
        Claim(
            "2b",
            f"The representation of layer {data.attrs['shown_layer']} is planar and its "
            "coordinates are summary statistics.",
            {
                "share of variance in two directions": float(data["planar_fraction"]),
                "R² of the true statistics": [float(r) for r in recovered],
                "R² from the input's own first two directions": [float(r) for r in control],
            },
            bool(data["planar_fraction"] > 0.95 and recovered.min() > 0.9),
            "polynomials of degree 5 in the two coordinates, on unseen paths",
        ),
        Claim(
            "2c",
            f"Points on one rotation orbit collapse in layer {data.attrs['orbit_layer']}.",
            {"variance within orbits": within, "untrained": before},
            bool(within < 0.1 * before) or ("partly" if within < before else False),
            "share of the variance of the hidden layer over 40 orbits with 32 points each",
        ),
    ]


def draw(data: xr.Dataset) -> Any:
    """Spectra by layer; the plane of the shown layer with paths coloured by a true statistic;
    distances on a plane across w.
    """
    import matplotlib.pyplot as plt

    figure, (a, b, c) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    a.plot(
        data["layer"].values,
        data["singular_values"].values,
        color=PALETTE[0],
        lw=0.7,
        marker=".",
        ms=2.5,
    )
    a.set(xlabel="layer", ylabel="singular values of W", ylim=(0, None))
    a.set_title(
        f"L = {data.attrs['net_depth']}, width {data.attrs['width']}, λ = {data.attrs['ridge']:g}",
        fontsize=9,
    )
    plane, u = data["plane"].values, data["statistics"].values
    b.plot(plane[:, :, 0], plane[:, :, 1], color="0.7", lw=0.6, zorder=1)
    dots = b.scatter(
        plane[..., 0].ravel(),
        plane[..., 1].ravel(),
        c=u[..., 0].ravel(),
        s=7,
        cmap="viridis",
        zorder=2,
    )
    figure.colorbar(dots, ax=b, label="(wᵀv)²")
    b.set(xlabel="first direction", ylabel="second direction")
    b.set_title(
        f"pre-activations of layer {data.attrs['shown_layer']} along paths of gradient descent",
        fontsize=9,
    )
    line = data["p"].values
    image = c.imshow(
        data["distance"].values.T,
        origin="lower",
        extent=(line[0], line[-1], line[0], line[-1]),
        cmap="cividis",
    )
    c.plot([0.7], [0.0], "s", color="white", ms=4)
    figure.colorbar(image, ax=c, label="‖α(x₀) − α(x)‖")
    c.set(xlabel="first coordinate across w", ylabel="second coordinate across w")
    c.set_title(f"distances in hidden layer {data.attrs['orbit_layer']}", fontsize=9)
    return figure
