"""What the five papers leave open: learning coefficients beside ranks, label noise, grokking, and
the two-term losses of physics-informed networks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

import neuromanifold as nm
from neuromanifold_papers.beyond import figures
from neuromanifold_papers.beyond.cast import CAST
from neuromanifold_papers.blocks import NOT_MEASURED, Block, run_blocks
from neuromanifold_papers.output import Claim, save_data, save_figure

STUDY = "beyond"


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    draws: int
    seeds: int
    noises: tuple[float, ...]
    fitted: int
    modulus: int
    hidden: int
    grokking: int
    wave: int


SCALES = {
    "small": Scale(
        draws=2000, seeds=5, noises=(0.0, 0.25, 0.5, 0.75, 1.0), fitted=3000, modulus=13,
        hidden=52, grokking=5000, wave=10_000,
    ),
    "paper": Scale(
        draws=20_000, seeds=10, noises=(0.0, 0.1, 0.25, 0.5, 0.75, 1.0), fitted=10_000, modulus=17,
        hidden=64, grokking=20_000, wave=40_000,
    ),
}  # fmt: skip


def reproduce(
    out: Path,
    *,
    figure: int | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Figures 1 to 4 into `out`, with what was expected before they were computed (`Claim`).

    1: learning coefficients against closed forms; 2: networks that fit labels of growing noise; 3:
    grokking; 4: a differential equation with and without balanced terms. Finished figures are not
    computed again.
    """
    if scale not in SCALES:
        raise ValueError(f"`scale` is {scale!r}; pass 'small' or 'paper'.")
    if figure is not None and figure not in FIGURES:
        raise ValueError(f"`figure` is {figure}; this study has the figures 1 to {len(FIGURES)}.")
    blocks = [Block(f"figure_{n}", partial(_figure, n)) for n in FIGURES]
    only = None if figure is None else [f"figure_{figure}"]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks(STUDY, blocks, Path(out), scale, **chosen)


def _figure(number: int, out: Path, scale: str, progress: bool) -> list[Claim]:
    measure, draw = FIGURES[number]
    try:
        data, claims = measure(SCALES[scale])
    except ModuleNotFoundError as error:
        return [Claim(str(number), "needs its data set", str(error), NOT_MEASURED)]
    save_data(data, out, f"figure_{number}")
    save_figure(draw(data), out, f"figure_{number}")
    return claims


def learning_coefficients(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 1: λ̂ of models whose λ is known, at inverse temperatures from 10² to 10⁶."""
    temperatures = np.array([1e2, 1e4, 1e6])
    found = [
        [
            nm.learning_coefficient(
                case.f,
                case.params,
                case.x,
                case.y,
                key=jax.random.key(0),
                inverse_temperature=b,
                draws=scale.draws,
            )
            for b in temperatures
        ]
        for case in CAST
    ]
    axes = ("model", "inverse_temperature")
    data = xr.Dataset(
        {
            "estimate": (axes, [[r.value for r in row] for row in found]),
            "error": (axes, [[r.error for r in row] for row in found]),
            "r_hat": (axes, [[r.r_hat for r in row] for row in found]),
            "half_rank": ("model", [row[0].lower_bound for row in found]),
            "exact": ("model", [case.exact for case in CAST]),
        },
        {"model": [case.name for case in CAST], "inverse_temperature": temperatures},
    )
    last = data.isel(inverse_temperature=-1)
    slack = 3 * last.error + np.array([case.slack(temperatures[-1]) for case in CAST])
    close = (np.abs(last.estimate - last.exact) <= slack) & (last.r_hat <= 1.05)
    above = data.half_rank <= data.exact + 1e-9
    told = {
        case.name: f"{float(e):.2f} ± {float(s):.2f} for {case.exact:g}"
        for case, e, s in zip(CAST, last.estimate, last.error, strict=True)
    }
    return data, [
        Claim(
            "1",
            "at b = 10⁶ the estimate lies within three standard errors of λ, and 2(m − 1)/log b "
            "where minima cross m times",
            told,
            bool(close.all()) or ("partly" if close.any() else False),
            f"{int(close.sum())} of {len(CAST)} models; chains that have not agreed (R̂ > 1.05) do not count",
        ),
        Claim(
            "1",
            "half the rank is at most λ, and less exactly where the minima are no manifold",
            {case.name: f"{float(h):g} of {case.exact:g}" for case, h in zip(CAST, data.half_rank, strict=True)},
            bool(above.all())
            and all((float(h) < c.exact) == c.singular for c, h in zip(CAST, data.half_rank, strict=True)),
        ),
    ]  # fmt: skip


def label_noise(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 2: digits averaged to 4×4 pixels, a share of the labels drawn at random, fitted by one
    architecture; its rank on 200 other images.
    """
    digits = nm.data.load("digits")
    images = np.asarray(digits.x).reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    labels = np.asarray(digits.y).argmax(axis=1)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    fit, fresh = order[:200], order[200:400]
    random = rng.integers(10, size=200)
    ranks = rng.permutation(200)
    targets = np.stack(
        [np.eye(10)[np.where(ranks < 200 * noise, random, labels[fit])] for noise in scale.noises]
    ).astype(np.float32)
    net = nm.MLP((16, 20, 20, 10), "relu")
    shown = images[fresh].astype(np.float64)

    def on_fresh(probe: Callable[..., Any]) -> nm.dynamics.Probe:
        return nm.dynamics.Probe(
            lambda f, params, x, y: probe(f, params, jnp.asarray(shown, x.dtype), y), probe.__name__
        )

    done = nm.train(
        net,
        net.init(key=jax.random.key(0), runs=scale.seeds),
        np.broadcast_to(images[fit].astype(np.float32), (len(scale.noises), 200, 16)),
        targets,
        key=jax.random.key(1),
        epochs=scale.fitted,
        loss=nm.losses.cross_entropy,
        optimizer=optax.adam(1e-2),
        probes=[
            nm.probes.loss(nm.losses.cross_entropy),
            on_fresh(nm.probes.functional_dimension),
            on_fresh(nm.probes.effective_rank),
        ],
        every=scale.fitted // 5,
    )
    data = done.history.assign_coords(dataset=list(scale.noises)).rename(dataset="noise")
    return data, [
        _grows(data.functional_dimension, "functional dimension"),
        _grows(data.effective_rank, "effective rank of the kernel"),
    ]


def _grows(values: xr.DataArray, name: str) -> Claim:
    last = values.isel(epoch=-1).mean("run")
    spread = values.isel(epoch=-1).std("run", ddof=1) / np.sqrt(values.sizes["run"])
    means = np.asarray(last, float)
    change = (values.isel(epoch=-1, noise=-1) - values.isel(epoch=-1, noise=0)).values
    sure = change.mean() > 2 * change.std(ddof=1) / np.sqrt(len(change))
    grows = bool((np.diff(means) > 0).all() and sure), bool(means[-1] > means[0])
    return Claim(
        "2",
        f"the {name} after training grows with the share of random labels",
        {
            f"{float(noise):.0%}": f"{m:.1f} ± {float(s):.1f}"
            for noise, m, s in zip(values.noise, means, spread, strict=True)
        },
        grows[0] or ("partly" if grows[1] else False),
        f"mean over runs ± standard error; from 0 to 100 % it grows in {int((change > 0).sum())} of "
        f"{len(change)} runs, by {change.mean():.1f} ± {change.std(ddof=1) / np.sqrt(len(change)):.1f}",
    )


def grokking(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 3: addition modulo p by a perceptron on 70 % of all pairs, weight decay 0 and 1."""
    p = scale.modulus
    pairs = np.array([(a, b) for a in range(p) for b in range(p)])
    x = np.concatenate([np.eye(p)[pairs[:, 0]], np.eye(p)[pairs[:, 1]]], axis=1)
    y = np.eye(p)[pairs.sum(axis=1) % p]
    order = np.random.default_rng(0).permutation(len(x))
    fit, held = np.split(order, [int(0.7 * len(x))])
    net = nm.MLP((2 * p, scale.hidden, p), "relu", bias=False)

    def accuracy_on(rows: np.ndarray, name: str) -> nm.dynamics.Probe:
        points, classes = jnp.asarray(x[rows], jnp.float32), jnp.asarray(y[rows].argmax(axis=1))
        return nm.dynamics.Probe(
            lambda f, params, _, __: jnp.mean(f(params, points).argmax(axis=1) == classes), name
        )

    def spectrum(f: Any, params: Any, _: Any, __: Any) -> Any:
        """The functional dimension on all pairs, and the effective rank of their kernel."""
        rank = nm.functional_dimension(f, params, jnp.asarray(x, jnp.float32))
        share = jnp.asarray(rank.spectrum) ** 2 / jnp.sum(jnp.asarray(rank.spectrum) ** 2)
        entropy = -jnp.sum(jnp.where(share > 0, share * jnp.log(share), 0.0))
        return jnp.stack([rank.value.astype(float), jnp.exp(entropy)])

    done = nm.train(
        net,
        net.init(key=jax.random.key(0), runs=2, scheme=nm.init.lecun),
        x[fit].astype(np.float32),
        y[fit].astype(np.float32),
        key=jax.random.key(1),
        epochs=scale.grokking,
        optimizer=lambda weight_decay: optax.adamw(1e-2, weight_decay=weight_decay),
        hyper={"weight_decay": [0.0, 1.0]},
        probes=[
            accuracy_on(fit, "accuracy"),
            accuracy_on(held, "held_out"),
            nm.dynamics.Probe(spectrum, "spectrum", ("what",)),
        ],
        every=scale.grokking // 4,
    )
    parts = ["functional_dimension", "effective_rank"]
    both = done.history.spectrum.assign_coords(what=parts).to_dataset("what")
    data = done.history.drop_vars("spectrum").merge(both)
    last, decayed = data.isel(epoch=-1), data.sel(weight_decay=1.0)
    gain = (last.held_out.sel(weight_decay=1.0) - last.held_out.sel(weight_decay=0.0)).mean()
    top = decayed.functional_dimension.isel(epoch=1).mean("run")
    end = decayed.functional_dimension.isel(epoch=-1).mean("run")
    fall = float(1 - end / top)
    spectral = decayed.effective_rank.mean("run")
    return data, [
        Claim(
            "3",
            "with weight decay the network generalises, without it does not",
            {
                f"weight decay {float(w):g}": f"{float(last.held_out.sel(weight_decay=w).mean()):.2f}"
                for w in data.weight_decay
            },
            bool(gain > 0.3),
            "held-out accuracy at the end, mean of 2 runs",
        ),
        Claim(
            "3",
            "functional dimension falls at the transition, as the thesis that it measures "
            "complexity predicts",
            f"{float(top):.0f} after the fit, {float(end):.0f} at the end",
            True if fall > 0.1 else ("partly" if fall > 0.02 else False),
            f"it falls by {fall:.1%}; borne out would be a tenth",
        ),
        Claim(
            "3",
            "the effective rank of the kernel falls at the transition",
            [round(float(value), 1) for value in spectral],
            bool(spectral.isel(epoch=-1) < 0.9 * spectral.isel(epoch=1)),
            "mean over runs, weight decay 1",
        ),
    ]


def equation(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 4: u″ = −(4π)² sin 4πx on [0, 1] with u(0) = u(1) = 0, by Adam on the sum of two mean
    squares, with weights one and with those of `balancing_weights`, renewed ten times.
    """
    net = nm.MLP((1, 100, 1), "tanh", scaling="ntk")

    def residual(params: Any, z: Any) -> Any:
        def u(t: Any) -> Any:
            return net(params, t.reshape(1, 1))[0, 0]

        return jax.vmap(lambda t: jax.grad(jax.grad(u))(t[0]))(z)[:, None]

    z, edge = np.linspace(0, 1, 100)[:, None], np.array([[0.0], [1.0]])
    source = -((4 * np.pi) ** 2) * np.sin(4 * np.pi * z)
    points = np.linspace(0, 1, 1000)[:, None]
    exact = np.sin(4 * np.pi * points)
    adam, each = optax.adam(1e-3), scale.wave // 10

    def loss(params: Any, weights: Any) -> Any:
        inside = jnp.mean((residual(params, z) - source) ** 2)
        return (weights[0] * inside + weights[1] * jnp.mean(net(params, edge) ** 2)) / 2

    @jax.jit
    def train(params: Any, state: Any, weights: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            update, state = adam.update(jax.grad(loss)(params, weights), state)
            return (optax.apply_updates(params, update), state), None

        return jax.lax.scan(step, (params, state), None, length=each)[0]

    errors = np.zeros((2, scale.seeds, 11))
    with jax.enable_x64(True):
        for balanced in (0, 1):
            for run in range(scale.seeds):
                params = net.init(key=jax.random.key(run), scheme=nm.init.ntk, dtype=jnp.float64)
                state, weights = adam.init(params), jnp.ones(2)
                for k in range(11):
                    off = np.asarray(net(params, points)) - exact
                    errors[balanced, run, k] = np.linalg.norm(off) / np.linalg.norm(exact)
                    if balanced:
                        terms = (residual, net)
                        weights = jnp.asarray(
                            nm.tangent.balancing_weights(terms, params, (z, edge))
                        )
                    params, state = train(params, state, weights)
    data = xr.Dataset(
        {"error": (("balanced", "run", "step"), errors)},
        {"balanced": [False, True], "step": each * np.arange(11)},
    )
    early = data.error.sel(step=scale.wave // 2)
    plain, better = (float(early.sel(balanced=b).mean("run")) for b in (False, True))
    return data, [
        Claim(
            "4",
            "weights that balance the kernel's blocks make the error smaller after half of the "
            "steps, in every run",
            f"{plain:.2g} with weights one, {better:.2g} balanced",
            bool((early.sel(balanced=True) < early.sel(balanced=False)).all()),
            f"relative error in L², mean of {scale.seeds} runs after {scale.wave // 2:,} steps",
        )
    ]


FIGURES = {
    1: (learning_coefficients, figures.learning_coefficients),
    2: (label_noise, figures.label_noise),
    3: (grokking, figures.grokking),
    4: (equation, figures.equation),
}
