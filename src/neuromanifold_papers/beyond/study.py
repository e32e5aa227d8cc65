"""What the five papers leave open: learning coefficients beside ranks, label noise and growing
degree in perceptrons, convolutional networks and transformers, grokking, and the two-term losses of
physics-informed networks.
"""

import math
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
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold_papers.beyond import equal, figures, tasks
from neuromanifold_papers.beyond.cast import CAST
from neuromanifold_papers.blocks import NOT_MEASURED, Block, run_blocks
from neuromanifold_papers.output import Claim, save_data, save_figure

STUDY = "beyond"
COLDEST = 1e6
"""The inverse temperature of the learning coefficients that are known in closed form."""
LOCALISATION = 100.0
"""That of trained networks: with 1 their chains wander about 20 away and do not agree."""


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
    shares: tuple[float, ...]
    degrees: tuple[int, ...]
    pictures: int
    learned: int
    looks: int
    walks: int
    walkers: int
    width: int
    gain: float
    share: float
    decay: float
    adding: int


SCALES = {
    "small": Scale(
        draws=1500, seeds=5, noises=(0.0, 0.25, 0.5, 0.75, 1.0), fitted=3000, modulus=13,
        hidden=52, grokking=5000, wave=10_000, shares=(0.0, 0.5, 1.0), degrees=(1, 3, 9),
        pictures=64, learned=600, looks=1, walks=600, walkers=3, width=12, gain=2.0, share=0.7, decay=0.3,
        adding=2500,
    ),
    "paper": Scale(
        draws=20_000, seeds=10, noises=(0.0, 0.1, 0.25, 0.5, 0.75, 1.0), fitted=10_000, modulus=17,
        hidden=64, grokking=20_000, wave=40_000, shares=(0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
        degrees=(1, 2, 4, 8, 16), pictures=200, learned=10_000, looks=4, walks=4000, walkers=10, width=32, gain=2.0,
        share=0.7, decay=0.3, adding=40_000,
    ),
}  # fmt: skip


def reproduce(
    out: Path,
    *,
    figure: int | str | None = None,
    scale: str = "small",
    progress: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Figures 1 to 7 into `out`, with what was expected before they were computed (`Claim`).

    1: learning coefficients against closed forms; 2: networks that fit labels of growing noise; 3:
    grokking; 4: a differential equation with and without balanced terms; 5: moves that keep the
    function; 6: a convolutional network and a transformer on tasks of Fashion-MNIST that grow
    harder; 7: grokking in a transformer. "digits", only where it is asked for, is figure 6 on the
    digits of scikit-learn. Finished figures are not computed again; one whose data set is missing
    says how to get it.
    """
    if scale not in SCALES:
        raise ValueError(f"`scale` is {scale!r}; pass 'small' or 'paper'.")
    every = FIGURES | ASKED
    if figure is not None and figure not in every:
        raise ValueError(
            f"`figure` is {figure!r}; this study has the figures 1 to {len(FIGURES)}, and "
            f"{', '.join(ASKED)}."
        )
    blocks = [Block(f"figure_{n}", partial(_figure, n)) for n in every]
    only = [f"figure_{n}" for n in (FIGURES if figure is None else (figure,))]
    chosen: Any = {"only": only, "progress": progress, "workers": workers, "scheduler": scheduler}
    return run_blocks(STUDY, blocks, Path(out), scale, **chosen)


def _figure(number: int | str, out: Path, scale: str, progress: bool) -> list[Claim]:
    measure, draw = (FIGURES | ASKED)[number]
    try:
        data, claims = measure(SCALES[scale])
    except tasks.MissingData as error:
        return [Claim(str(number), "needs its data set", str(error), NOT_MEASURED)]
    save_data(data, out, f"figure_{number}")
    save_figure(draw(data), out, f"figure_{number}")
    return claims


def learning_coefficients(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 1: λ̂ of models whose λ is known, along a ladder of inverse temperatures up to 10⁶."""
    found = [
        nm.learning_coefficient(
            case.f,
            case.params,
            case.x,
            case.y,
            key=jax.random.key(0),
            inverse_temperature=COLDEST,
            localisation=case.localisation,
            draws=scale.draws,
            leaps=8,
            ladder=20,
        )
        for case in CAST
    ]
    curves, axes = [result.curve for result in found], ("model", "rung")
    data = xr.Dataset(
        {
            "inverse_temperature": (axes, [b for b, _, _ in curves]),
            "estimate": (axes, [value for _, value, _ in curves]),
            "error": (axes, [error for _, _, error in curves]),
            "r_hat": ("model", [result.r_hat for result in found]),
            "half_rank": ("model", [result.lower_bound for result in found]),
            "exact": ("model", [case.exact for case in CAST]),
        },
        {"model": [case.name for case in CAST]},
    )
    last = data.isel(rung=-1)
    slack = 3 * last.error + np.array([case.slack(COLDEST) for case in CAST])
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
            f"{int(close.sum())} of {len(CAST)} models; chains that have not agreed (R̂ > 1.05) do not "
            f"count, the largest R̂ is {float(data.r_hat.max()):.3f}",
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
    digits = tasks.load("digits")
    images = np.asarray(digits.x).reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    labels = np.asarray(digits.y).argmax(axis=1)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    fit, fresh = order[:200], order[200:400]
    random = rng.integers(10, size=200)
    shuffled = rng.permutation(200)
    targets = np.stack(
        [
            np.eye(10)[np.where(shuffled < 200 * noise, random, labels[fit])]
            for noise in scale.noises
        ]
    ).astype(np.float32)
    net = nm.MLP((16, 20, 20, 10), "relu")
    shown = images[fresh].astype(np.float64)

    def ranks(f: Any, params: Any, x: Any, _: Any) -> Any:
        """The functional dimension on the other images, and the effective rank of their kernel."""
        rank = nm.functional_dimension(f, params, jnp.asarray(shown, x.dtype))
        return jnp.stack([rank.value.astype(float), _effective(rank.spectrum)])

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
            nm.dynamics.Probe(ranks, "ranks", ("what",)),
        ],
        every=scale.fitted,
    )
    history = done.history.assign_coords(what=["functional_dimension", "effective_rank"])
    data = history.drop_vars("ranks").merge(history.ranks.to_dataset("what"))
    data = data.assign_coords(dataset=list(scale.noises)).rename(dataset="noise")
    return data, [
        _grows(data.functional_dimension.isel(epoch=-1), "2", "functional dimension", NOISE),
        _grows(data.effective_rank.isel(epoch=-1), "2", "effective rank of the kernel", NOISE),
    ]


UNDECIDED = "undecided"
NOISE, DEGREE = "the share of random labels", "the degree of the labels"


def _grows(values: xr.DataArray, figure: str, name: str, with_what: str) -> Claim:
    """Whether the mean over `run` grows at each step along the other axis and from its first to its
    last place by more than two standard errors; in part where only the last mean is larger.
    """
    values = values.transpose(..., "run")
    last = values.mean("run")
    spread = values.std("run", ddof=1) / np.sqrt(values.sizes["run"])
    means = np.asarray(last, float)
    change = np.asarray(values[-1] - values[0], float)
    sure = change.mean() > 2 * change.std(ddof=1) / np.sqrt(len(change))
    grows = bool((np.diff(means) > 0).all() and sure), bool(means[-1] > means[0])
    return Claim(
        figure,
        f"the {name} after training grows with {with_what}",
        {
            f"{float(at):.0%}"
            if with_what == NOISE
            else f"{float(at):g}": f"{m:.1f} ± {float(s):.1f}"
            for at, m, s in zip(values[values.dims[0]], means, spread, strict=True)
        },
        grows[0] or ("partly" if grows[1] else False),
        f"mean over runs ± standard error; from first to last it grows in {int((change > 0).sum())} of "
        f"{len(change)} runs, by {change.mean():.1f} ± {change.std(ddof=1) / np.sqrt(len(change)):.1f}",
    )


def grokking(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 3: addition modulo p by a perceptron on 70 % of all pairs, weight decay 0 and 1: ranks
    when it fits (0.99 of the training pairs), when it generalises (0.75 of the others) and at the
    end.
    """
    x, y, fit, held = _addition(scale.modulus, 0.7)
    net = nm.MLP((2 * scale.modulus, scale.hidden, scale.modulus), "relu", bias=False)
    done = nm.train(
        net,
        net.init(key=jax.random.key(0), runs=2, scheme=nm.init.lecun),
        x[fit],
        y[fit],
        key=jax.random.key(1),
        epochs=scale.grokking,
        optimizer=lambda weight_decay: optax.adamw(1e-2, weight_decay=weight_decay),
        hyper={"weight_decay": [0.0, 1.0]},
        probes=[_accuracy(), _held_out(x[held], y[held]), nm.probes.snapshot],
        every=max(1, scale.grokking // 25),
    )
    data, _ = _at_moments(net, done, x)
    return data, _grokking_claims(data, "3", "perceptron")


def _addition(p: int, share: float) -> tuple[Any, Any, Any, Any]:
    """All pairs of numbers modulo p, one-hot, their sums, and the rows to fit and to hold out."""
    pairs = np.array([(a, b) for a in range(p) for b in range(p)])
    x = np.concatenate([np.eye(p)[pairs[:, 0]], np.eye(p)[pairs[:, 1]]], axis=1)
    y = np.eye(p, dtype=np.float32)[pairs.sum(axis=1) % p]
    order = np.random.default_rng(0).permutation(len(x))
    fit, held = np.split(order, [int(share * len(x))])
    return x.astype(np.float32), y, fit, held


def _held_out(x: Any, y: Any) -> nm.dynamics.Probe:
    """The accuracy on other points."""
    return nm.dynamics.Probe(
        lambda f, params, _, __: _accuracy()(f, params, jnp.asarray(x), jnp.asarray(y)), "held_out"
    )


def _at_moments(f: Any, done: Any, x: Any) -> tuple[xr.Dataset, Callable[[int, int, int], Any]]:
    """Functional dimension and effective rank on `x` at the three moments of each run, and the
    parameters at the weight decay, run and moment of given numbers.
    """
    history = done.history.transpose("weight_decay", "run", "epoch", ...)
    decays, runs = history.sizes["weight_decay"], history.sizes["run"]
    unravel = ravel_pytree(done.member())[1]
    at = np.array(
        [
            [_moments(history.isel(weight_decay=w, run=r)) for r in range(runs)]
            for w in range(decays)
        ]
    )

    def params(w: int, r: int, moment: int) -> Any:
        return unravel(jnp.asarray(history.parameters.values[w, r, at[w, r, moment]]))

    def ranks(w: int, r: int) -> list[Any]:
        """Those of a run; moments at one epoch share them."""
        found: dict[int, Any] = {}
        for moment, epoch in enumerate(at[w, r]):
            if epoch not in found:
                rank = nm.functional_dimension(f, params(w, r, moment), x, smallest_gap=0.0)
                found[epoch] = int(rank), float(_effective(rank.spectrum))
        return [found[epoch] for epoch in at[w, r]]

    ranked = np.array([[ranks(w, r) for r in range(runs)] for w in range(decays)])
    axes = ("weight_decay", "run", "moment")
    data = history[["accuracy", "held_out"]].assign(
        functional_dimension=(axes, ranked[..., 0]),
        effective_rank=(axes, ranked[..., 1]),
        reached=(axes, np.asarray(history.epoch)[at]),
    )
    return data.assign_coords(moment=list(MOMENTS)), params


def real_tasks(name: str, figure: str, scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figures 6 and "digits": a convolutional network and a transformer learn labels of growing noise, and
    labels that go ever more often through all classes along one direction.

    Every run starts from the same parameters on all tasks. The claims were committed before the
    first run. The thesis of [complexity]: functional dimension tracks the complexity of the task,
    and grows while it is learned.
    """
    pixels, labels = tasks.images(name)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(pixels))[: scale.pictures]
    x, spread = pixels[chosen], pixels.std(axis=0)
    far = pixels.mean(axis=0) + 3 * spread * rng.normal(size=x.shape)
    classes = [tasks.noisy(labels[chosen], scale.shares, rng), tasks.cycling(x, scale.degrees)]
    y = np.eye(tasks.CLASSES, dtype=np.float32)[np.concatenate(classes)]
    found = [_learned(network, x.astype(np.float32), y, far, scale) for network in tasks.NETWORKS]
    apart = [name for each in found for name in each if str(name).startswith("layers")]
    shared = [each.drop_vars(apart, errors="ignore") for each in found]
    data = xr.concat(shared, xr.IndexVariable("network", list(tasks.NETWORKS)))
    data = xr.merge([data, *(each[[name for name in each if name in apart]] for each in found)])
    return data, [claim for network in tasks.NETWORKS for claim in _real_claims(data.sel(network=network), figure)]  # fmt: skip


_MEASURED = ("sample", "other inputs", "effective rank")


def _learned(network: str, x: Any, y: Any, far: Any, scale: Scale) -> xr.Dataset:
    """One network on all tasks: accuracy and ranks along training, and learning coefficients of
    the first and the last share of random labels.
    """
    f, shapes = tasks.NETWORKS[network], tasks.SHAPES[network]
    done = nm.train(
        f,
        tasks.initial(shapes, key=jax.random.key(0), runs=scale.seeds, gain=2.0),
        np.broadcast_to(x, (len(y), *x.shape)),
        y,
        key=jax.random.key(1),
        epochs=scale.learned,
        loss=nm.losses.cross_entropy,
        optimizer=optax.adam(1e-2),
        probes=[_accuracy(), nm.probes.snapshot],
        every=-(-scale.learned // scale.looks),
        stacked=True,
    )
    points = done.history.parameters.transpose("dataset", "run", "epoch", "parameter").values
    ends = np.cumsum([sum(map(math.prod, layer.values())) for layer in shapes.values()])
    unravel, wide = ravel_pytree(done.member())[1], x.astype(np.float64)

    def ranks(point: np.ndarray) -> list[float]:
        params = jax.tree.map(lambda a: np.asarray(a, np.float64), unravel(jnp.asarray(point)))
        here, there = (np.asarray(nm.jacobian(f, params, inputs)) for inputs in (wide, far))
        rank = numerical_rank(here)
        alone = [int(numerical_rank(block)) for block in np.split(here, ends[:-1], axis=1)]
        return [int(rank), int(numerical_rank(there)), float(_effective(rank.spectrum)), *alone]

    start = np.apply_along_axis(ranks, -1, points[0, :, :1])  # the same on all tasks
    later = np.apply_along_axis(ranks, -1, points[:, :, 1:])
    starts = np.broadcast_to(start, (len(points), *start.shape))
    measured = np.concatenate([starts, later], axis=2)
    ranked = xr.DataArray(measured, dims=("task", "run", "epoch", "what"))
    walked = [
        [
            nm.learning_coefficient(
                f, done.member(dataset=task, run=run), x, y[task], key=jax.random.key(run),
                loss=nm.losses.cross_entropy, chains=4, draws=scale.walks,
                burn_in=scale.walks // 3, leaps=6,
                localisation=LOCALISATION,
            )
            for run in range(scale.walkers)
        ]
        for task in (0, len(scale.shares) - 1)
    ]  # fmt: skip
    layers = ranked[..., len(_MEASURED) :].rename(what=f"{network} layer")
    task = [f"{share:.0%} random" for share in scale.shares] + [
        f"degree {k}" for k in scale.degrees
    ]
    return xr.Dataset(
        {
            "accuracy": done.history.accuracy.drop_vars("dataset").rename(dataset="task"),
            **{name: ranked[..., k] for k, name in enumerate(_MEASURED)},
            f"layers of the {network} network": layers,
            **_walked(walked, ("ends", "walker")),
        }
    ).assign_coords(task=task, ends=[scale.shares[0], scale.shares[-1]], degree=list(scale.degrees), share=list(scale.shares))  # fmt: skip


def _accuracy() -> nm.dynamics.Probe:
    return nm.dynamics.Probe(
        lambda f, params, x, y: jnp.mean(f(params, x).argmax(axis=1) == y.argmax(axis=1)),
        "accuracy",
    )


def _effective(spectrum: Any) -> Any:
    """exp(−Σ p log p) of the shares p of the kernel's eigenvalues."""
    share = jnp.asarray(spectrum) ** 2 / jnp.sum(jnp.asarray(spectrum) ** 2)
    return jnp.exp(-jnp.sum(jnp.where(share > 0, share * jnp.log(share), 0.0)))


def _real_claims(data: xr.Dataset, figure: str) -> list[Claim]:
    network, shares = f"{data.network.item()} network", data.sizes["share"]
    noise = data.isel(task=slice(0, shares), epoch=-1).assign_coords(task=data.share.values)
    degree = data.isel(task=slice(shares, None), epoch=-1).assign_coords(task=data.degree.values)
    names = {
        "sample": f"functional dimension on the sample of the {network}",
        "other inputs": f"functional dimension on other inputs of the {network}",
        "effective rank": f"effective rank of the kernel of the {network}",
    }
    rise = (data["sample"].isel(epoch=-1) - data["sample"].isel(epoch=0)).mean("task").values
    error = rise.std(ddof=1) / np.sqrt(len(rise))
    agreed = ~data.doubted.any("ends")
    walked = data.value.rename(ends="task", walker="run").isel(run=np.flatnonzero(agreed.values))
    least = float(data.accuracy.isel(epoch=-1).mean("run").min())
    return [
        Claim(
            figure,
            f"the {network} fits every task, so that their differences are of tasks that are learned",
            f"{least:.3f}",
            least >= 0.95,
            "training accuracy of the task that is fitted worst, mean over runs; borne out from 0.95",
        ),
        *(_grows(noise[name], figure, told, NOISE) for name, told in names.items()),
        *(_grows(degree[name], figure, told, DEGREE) for name, told in names.items()),
        Claim(
            figure,
            f"the {names['sample']} grows while it learns",
            f"by {rise.mean():.1f} ± {error:.1f}",
            bool(rise.mean() > 2 * error) or ("partly" if rise.mean() > 0 else False),
            "from the start to the end of training, mean over tasks and runs ± standard error over runs",
        ),
        _grows(walked, figure, f"learning coefficient of the {network}", NOISE)
        if walked.sizes["run"] > 1
        else Claim(
            figure,
            f"the learning coefficient of the {network} after training grows with {NOISE}",
            f"R̂ from {float(data.r_hat.min()):.2f} to {float(data.r_hat.max()):.2f}",
            UNDECIDED,
            f"chains of {walked.sizes['run']} of {data.sizes['walker']} runs agreed on both tasks",
        ),
    ]  # fmt: skip


MOMENTS = ("fits", "generalises", "end")
GENERALISES = 0.75
"""Of the pairs held out; one in p would be chance."""


def adding(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 7: addition modulo p by a transformer of one layer, with and without weight decay: ranks
    as in figure 3, learning coefficients when it fits and at the end.

    The claims were committed before ranks were computed.
    """
    x, y, fit, held = _addition(scale.modulus, scale.share)
    shapes = tasks.adder_shapes(scale.modulus, scale.width)
    done = nm.train(
        tasks.adder,
        tasks.initial(shapes, key=jax.random.key(0), runs=scale.walkers, gain=scale.gain),
        x[fit],
        y[fit],
        key=jax.random.key(1),
        epochs=scale.adding,
        loss=nm.losses.cross_entropy,
        optimizer=lambda weight_decay: optax.adamw(1e-2, b2=0.98, weight_decay=weight_decay),
        hyper={"weight_decay": [0.0, scale.decay]},
        probes=[_accuracy(), _held_out(x[held], y[held]), nm.probes.snapshot],
        every=max(1, scale.adding // 30),
    )
    data, params = _at_moments(tasks.adder, done, x)
    walked = [
        [
            nm.learning_coefficient(
                tasks.adder, params(1, run, moment), x[fit], y[fit], key=jax.random.key(run),
                loss=nm.losses.cross_entropy, chains=4, draws=scale.walks,
                burn_in=scale.walks // 3, leaps=6,
                localisation=LOCALISATION,
            )
            for moment in (0, 2)
        ]
        for run in range(scale.walkers)
    ]  # fmt: skip
    data = data.assign(_walked(walked, ("run", "ends"))).assign_coords(ends=["fits", "end"])
    return data, [*_grokking_claims(data, "7", "transformer"), _simpler(data)]


def _walked(found: list[list[Any]], axes: tuple[str, str]) -> dict[str, Any]:
    """Learning coefficients with their errors, R̂, and whether something speaks against them."""
    numbers = {
        name: (axes, [[getattr(each, name) for each in row] for row in found])
        for name in ("value", "error", "r_hat")
    }
    return {**numbers, "doubted": (axes, [[bool(each.doubt()) for each in row] for row in found])}


def _moments(one: xr.Dataset) -> list[int]:
    """The places of the three moments among the epochs; what never happens, at the end."""
    last = one.sizes["epoch"] - 1
    fits = np.append(np.flatnonzero(one.accuracy >= 0.99), last)[0]
    later = (one.held_out >= GENERALISES) & (np.arange(last + 1) >= fits)
    return [int(fits), int(np.append(np.flatnonzero(later), last)[0]), last]


def _grokking_claims(data: xr.Dataset, figure: str, network: str) -> list[Claim]:
    last = data.isel(epoch=-1)
    gain = float(last.held_out.diff("weight_decay").mean())
    grokked = _generalising(data)
    decayed, plain = data.isel(weight_decay=1, run=grokked), data.isel(weight_decay=0)
    claims = [
        Claim(
            figure,
            f"with weight decay the {network} generalises, without it does not",
            {
                f"weight decay {float(w):g}": f"{float(last.held_out.sel(weight_decay=w).mean()):.2f}"
                for w in data.weight_decay
            },
            gain > 0.3,
            f"held-out accuracy at the end, mean of {data.sizes['run']} runs; {len(grokked)} of them "
            f"generalise with weight decay ({GENERALISES:.0%} or more)",
        )
    ]
    for name, told in [
        ("functional_dimension", "functional dimension on all pairs"),
        ("effective_rank", "effective rank of the kernel"),
    ]:
        whole = f"the {told} falls from the fit to the moment at which the {network} generalises"
        if not len(grokked):
            claims.append(Claim(figure, whole, "no run generalised", UNDECIDED))
            continue
        fall = 1 - decayed[name].sel(moment="generalises") / decayed[name].sel(moment="fits")
        later = 1 - decayed[name].sel(moment="end") / decayed[name].sel(moment="fits")
        without = 1 - plain[name].sel(moment="end") / plain[name].sel(moment="fits")
        mean = float(fall.mean())
        claims.append(
            Claim(
                figure,
                whole,
                {m: round(float(decayed[name].sel(moment=m).mean()), 1) for m in MOMENTS},
                True if mean > 0.1 else ("partly" if mean > 0.02 else False),
                f"it falls by {mean:.1%}, to the end by {float(later.mean()):.1%}, without weight "
                f"decay by {float(without.mean()):.1%}; borne out would be a tenth, mean of "
                f"{len(grokked)} runs that generalise",
            )
        )
    return claims


def _generalising(data: xr.Dataset) -> Any:
    """The runs with weight decay that generalise in the end."""
    return np.flatnonzero(data.held_out.isel(weight_decay=1, epoch=-1) >= GENERALISES)


def _simpler(data: xr.Dataset) -> Claim:
    """Whether learning coefficients fall; chains that disagree are not counted."""
    decayed = data.isel(run=_generalising(data))
    agreed = decayed.isel(run=np.flatnonzero(~decayed.doubted.any("ends")))
    falls = np.asarray(agreed.value.transpose("run", "ends"), float) @ [1.0, -1.0]
    if len(falls) < 2:
        sure, told = UNDECIDED, f"R̂ from {float(data.r_hat.min()):.2f} to {float(data.r_hat.max()):.2f}"  # fmt: skip
    else:
        error = falls.std(ddof=1) / np.sqrt(len(falls))
        sure = bool(falls.mean() > 2 * error) or ("partly" if falls.mean() > 0 else False)
        means = agreed.value.mean("run")
        told = (
            f"{float(means[0]):.1f} and {float(means[1]):.1f}, by {falls.mean():.1f} ± {error:.1f}"
        )
    return Claim(
        "7",
        "the learning coefficient falls from the fit to the end where the transformer generalises",
        told,
        sure,
        f"{len(falls)} runs generalise and have chains that agree at both moments",
    )


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
    @jax.vmap
    def train(params: Any, state: Any, weights: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            update, state = adam.update(jax.grad(loss)(params, weights), state)
            return (optax.apply_updates(params, update), state), None

        return jax.lax.scan(step, (params, state), None, length=each)[0]

    @jax.jit
    @jax.vmap
    def error(params: Any) -> Any:
        return jnp.linalg.norm(net(params, points) - exact) / np.linalg.norm(exact)

    def balanced(params: Any) -> Any:
        return jnp.asarray(nm.tangent.balancing_weights((residual, net), params, (z, edge)))

    with jax.enable_x64(True):
        starts = [
            net.init(key=jax.random.key(run), scheme=nm.init.ntk, dtype=jnp.float64)
            for run in range(scale.seeds)
        ]
        params = jax.tree.map(lambda *each: jnp.stack(each), *starts, *starts)
        state, found = jax.vmap(adam.init)(params), [error(params)]
        for _ in range(10):
            lanes = [
                jax.tree.map(lambda a, i=i: a[scale.seeds + i], params) for i in range(scale.seeds)
            ]
            ones = jnp.ones((scale.seeds, 2))
            weights = jnp.concatenate([ones, jnp.stack([balanced(lane) for lane in lanes])])
            params, state = train(params, state, weights)
            found.append(error(params))
    errors = np.stack(found, axis=-1).reshape(2, scale.seeds, 11)
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


def equal_functions(scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    """Figure 5: what is measured of a network before and after moves that keep its function: ranks
    and kernels of a ReLU network, learning coefficients of a tanh network.

    The claims were written before the first run. After it the tanh network was exchanged for a
    smaller one, whose chains agree sooner, and the silent unit for one whose weights are not zero.
    """
    rng = np.random.default_rng(0)
    x, far = np.round(rng.normal(size=(60, 3)), 2), np.round(5 * rng.normal(size=(300, 3)), 2)
    y, start = rng.normal(size=(60, 2)), equal.perceptron((3, 6, 4, 2), "relu")
    moved = {name: move(start) for name, move in equal.MOVES.items()}
    rows = [equal.measured(network, x, y, far) for network in moved.values()]
    other = start[0], (*start[1][:-1], nm.Layer(1.5 * start[1][-1].weight, start[1][-1].bias))
    off = [np.abs(equal.outputs(n, x) - equal.outputs(start, x)).max() for n in moved.values()]
    z, degenerate = x[:50, :1], equal.unit()
    tanh = {name: move(degenerate) for name, (move, _) in equal.DEGENERATE.items()}
    found = [
        nm.learning_coefficient(
            net, params, z, equal.outputs(degenerate, z), key=jax.random.key(0),
            inverse_temperature=10 * COLDEST, localisation=30.0, draws=4 * scale.draws, leaps=8,
            ladder=20,
        )
        for net, params in tanh.values()
    ]  # fmt: skip
    raised = np.array([more for _, more in equal.DEGENERATE.values()])
    data = xr.Dataset(
        {
            "value": (("move", "quantity"), [list(row.values()) for row in rows]),
            "deviation": ("move", off),
            "estimate": ("degenerate", [r.value for r in found]),
            "error": ("degenerate", [r.error for r in found]),
            "r_hat": ("degenerate", [r.r_hat for r in found]),
            "half_rank": ("degenerate", [r.lower_bound for r in found]),
            "exact": ("degenerate", 2 + raised),
        },
        {"move": list(moved), "quantity": list(rows[0]), "degenerate": list(tanh)},
    )
    kept = np.isclose(data.value, data.value[0], rtol=1e-9).tolist()
    same = {
        move: {name for name, equals in zip(rows[0], row, strict=True) if equals}
        for move, row in zip(moved, kept, strict=True)
    }
    exact = set(list(rows[0])[:5])
    dimension = "functional dimension on the sample"
    wider = same["a unit split"] & same["a silent unit added"]
    everywhere = set.intersection(*same.values())
    close = (np.abs(data.estimate - data.exact) <= 3 * data.error) & (data.r_hat <= 1.05)
    control = np.abs(equal.outputs(other, x) - equal.outputs(start, x)).max()
    return data, [
        Claim(
            "5",
            "all moves keep the outputs on the sample to rounding",
            f"{max(off):.1e}; a last layer 1.5 times as large moves them by {control:.1f}",
            bool(max(off) < 1e-12 < control),
        ),
        Claim(
            "5",
            "rescaling units keeps all ranks and changes effective rank, trace, eigenvalues, sharpness "
            "and balances; permuting them changes nothing",
            f"rescaling keeps {len(same['rescaled'])} of {len(rows[0])}, permuting {len(same['permuted'])}",
            same["rescaled"] == exact and same["permuted"] == set(rows[0]),
        ),
        Claim(
            "5",
            "splitting a unit keeps the functional dimension, adding a silent one raises it, and "
            "reducing the width gives the old one back",
            {m: int(data.value.sel(move=m, quantity=dimension)) for m in moved},
            dimension in same["a unit split"]
            and dimension not in same["a silent unit added"]
            and dimension in same["both, then reduced"],
        ),
        Claim(
            "5",
            "under added width only the rank of ∂f/∂x and the ranks of the weights stay: no other "
            "measured quantity belongs to the function alone",
            f"under both kinds of width: {', '.join(sorted(wider))}; under all moves: "
            f"{', '.join(sorted(everywhere))}",
            wider == {"rank of ∂f/∂x", "ranks of the weights"},
        ),
        Claim(
            "5",
            "the learning coefficient of a tanh network grows by d/4 = ½ when a unit is split, and by "
            "½ for a silent and for a zero unit, while ½ rank grows by 0, ½ and 0",
            {
                name: f"{float(e):.2f} ± {float(s):.2f} for {float(t):g}, ½ rank {float(h):g}"
                for name, e, s, t, h in zip(tanh, data.estimate, data.error, data.exact, data.half_rank, strict=True)
            },
            bool(close.all() and (data.half_rank == [2, 2, 2, 2.5, 2, 2]).all())
            or ("partly" if close.any() else False),
            f"{int(close.sum())} of {len(tanh)} within three standard errors with R̂ ≤ 1.05",
        ),
    ]  # fmt: skip


FIGURES = {
    1: (learning_coefficients, figures.learning_coefficients),
    2: (label_noise, figures.label_noise),
    3: (grokking, figures.grokking),
    4: (equation, figures.equation),
    5: (equal_functions, figures.equal_functions),
    6: (partial(real_tasks, "Fashion-MNIST", "6"), figures.real_tasks),
    7: (adding, figures.adding),
}
ASKED = {"digits": (partial(real_tasks, "digits", "digits"), figures.real_tasks)}
"""What is computed only where it is asked for by name."""
