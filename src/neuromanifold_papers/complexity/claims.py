"""What the complexity paper says about its figures, beside what we measure."""

import numpy as np
import xarray as xr

from neuromanifold_papers.complexity.statistics import (
    correlations,
    described,
    finals,
    increasing,
    resampled,
    successful,
)
from neuromanifold_papers.output import Claim

LIMITS = {"univariate": 20, "bivariate": 60, "bivariate_100": 60, "energy": 400}
"""The mean functional dimension at initialisation is below this, says the paper.
[complexity, Sec. 6]
"""
NEARLY = 0.9
STRONG = 0.7
WELL_BELOW = 0.5
OVER_RUNS, OVER_SEEDS = "95 % interval over runs", "95 % interval over seeds"
_BOOTSTRAP = "intervals by 10,000 bootstrap resamples"
_WITHIN = ("dataset", "epoch")


def variation(figure: str, amounts: np.ndarray, names: tuple[str, ...]) -> Claim:
    """The functions are of increasing complexity."""
    measured = {name: round(float(amount), 2) for name, amount in zip(names, amounts, strict=True)}
    what = "total variation on [0, 1]" if figure == "Fig 1" else "mean length of the gradient"
    return Claim(
        figure,
        "the functions become more complex",
        measured,
        bool((np.diff(amounts) > 0).all()),
        what,
    )


def tracks_complexity(figure: str, history: xr.Dataset) -> list[Claim]:
    """Low rank at the start, rise and plateau or decline, order at the end; and float32 against
    the exact rank.
    """
    names = [str(name) for name in history.dataset.values]
    groups = [finals(history, "exact_dimension", {"dataset": name}) for name in names]
    verdict, steps = increasing(groups)
    single = [finals(history, "float32_dimension", {"dataset": name}) for name in names]
    single_verdict, single_steps = increasing(single)
    r2 = {name: _mean(finals(history, "r_squared", {"dataset": name})) for name in names}
    good = successful(history).sum("run")
    order = Claim(
        figure,
        f"after training the mean functional dimension is ordered: {' < '.join(names)}",
        {
            "exact": {name: described(group) for name, group in zip(names, groups, strict=True)},
            "float32": {name: described(group) for name, group in zip(names, single, strict=True)},
            "steps, exact": steps,
            "steps, float32": single_steps,
            "successful runs": {name: int(good.sel(dataset=name)) for name in names},
            "their mean r²": r2,
        },
        verdict,
        f"mean ± 95 % interval (runs) at epoch {int(history.epoch[-1])} over runs with r² > 0.9; "
        "steps are differences of "
        "neighbours, then of the ends, with Welch's 95 % interval; in float32 the order is "
        f"{_word(single_verdict)}",
    )
    return [order, _evolution(figure, history, names), _single_against_exact(figure, history)]


def _mean(values: np.ndarray) -> float | None:
    return round(float(values.mean()), 3) if values.size else None


def _word(verdict: bool | str) -> str:
    return (
        {True: "borne out", False: "not borne out"}.get(verdict, str(verdict))
        if isinstance(verdict, bool)
        else verdict
    )


def _evolution(figure: str, history: xr.Dataset, names: list[str]) -> Claim:
    measured, rises, settles = {}, [], []
    for name in names:
        one = history.sel(dataset=name)
        mean = one.exact_dimension.isel(run=successful(one).values).mean("run").dropna("epoch")
        if mean.sizes["epoch"] < 3 or not successful(one).any():
            continue
        top = int(mean.argmax("epoch"))
        start, high, end = float(mean[0]), float(mean[top]), float(mean[-1])
        late = mean.where(mean.epoch >= mean.epoch[-1] / 2, drop=True)
        slope = (
            float(late.polyfit("epoch", 1).polyfit_coefficients[0]) * float(history.epoch[-1]) / 2
        )
        measured[name] = {
            "start": round(start, 1),
            "largest": round(high, 1),
            "at epoch": int(mean.epoch[top]),
            "end": round(end, 1),
            "trend over the second half": round(slope, 1),
        }
        rises.append(high > start)
        settles.append(slope < 0.1 * (high - start))
    verdict = bool(all(rises) and all(settles)) if rises else "partly"
    return Claim(
        figure,
        "the functional dimension is low at initialisation, rises early, then plateaus or slowly "
        "decreases",
        measured,
        verdict if verdict else ("partly" if all(rises) else False),
        "mean exact rank over successful runs; a trend below a tenth of the rise counts as a "
        "plateau",
    )


def _single_against_exact(figure: str, history: xr.Dataset) -> Claim:
    exact = history.exact_dimension.values
    known = ~np.isnan(exact)
    single = (history.float32_dimension.values - exact)[known]
    double = (history.functional_dimension.values - exact)[known]
    return Claim(
        figure,
        "the float32 rank is the functional dimension",
        {
            "float32 − exact": {
                "mean": round(float(single.mean()), 2),
                "worst": int(single[np.abs(single).argmax()]),
            },
            "float64 − exact": {
                "mean": round(float(double.mean()), 3),
                "worst": int(double[np.abs(double).argmax()]),
            },
            "float32 equal": f"{100 * float((single == 0).mean()):.1f} %",
            "float64 equal": f"{100 * float((double == 0).mean()):.1f} %",
            "snapshots": int(known.sum()),
        },
        bool((single == 0).all()) or ("partly" if (single == 0).mean() > 0.5 else False),
        "all runs, all snapshots with an exact rank",
    )


def decay_suppresses(figure: str, history: xr.Dataset) -> list[Claim]:
    """Larger weight decay, smaller functional dimension."""
    decays = [float(decay) for decay in history.weight_decay.values]
    groups = [finals(history, "exact_dimension", {"weight_decay": decay}) for decay in decays]
    single = [finals(history, "float32_dimension", {"weight_decay": decay}) for decay in decays]
    verdict, steps = increasing(groups[::-1])
    single_verdict, _ = increasing(single[::-1])
    good = successful(history).sum("run")
    claim = Claim(
        figure,
        "larger weight decay gives a smaller functional dimension",
        {
            "exact": {
                f"{decay:g}": described(group) for decay, group in zip(decays, groups, strict=True)
            },
            "float32": {
                f"{decay:g}": described(group) for decay, group in zip(decays, single, strict=True)
            },
            "steps from large to small decay, exact": steps,
            "successful runs": {
                f"{decay:g}": int(good.sel(weight_decay=decay)) for decay in decays
            },
        },
        verdict,
        f"f2 at epoch {int(history.epoch[-1])}, runs with r² > 0.9; in float32 "
        f"{_word(single_verdict)}",
    )
    return [claim, _single_against_exact(figure, history)]


def regions_bound(figure: str, history: xr.Dataset, inputs: int) -> list[Claim]:
    """Correlation of regions and dimension; is the bound slack, are there more regions than
    dimensions?
    """
    names = [str(name) for name in history.dataset.values]
    along = {
        name: correlations(history.sel(dataset=[name]), "exact_dimension", "sampled_regions")
        for name in names
    }
    exact = history.exact_dimension.values
    known = ~np.isnan(exact)
    sampled, bound = history.sampled_regions.values[known], history.region_bound.values[known]
    rank = exact[known]
    printed = rank / ((inputs + 1) * sampled)
    tight = rank / bound
    means = [float(found.mean()) for found in along.values() if len(found)]
    correlation = Claim(
        figure,
        "functional dimension and regions sampled are strongly correlated along training",
        {
            "Pearson, mean over runs": {
                n: round(float(f.mean()), 2) for n, f in along.items() if len(f)
            },
            OVER_RUNS: {n: resampled(f) for n, f in along.items() if len(f)},
            "lowest run": {n: round(float(f.min()), 2) for n, f in along.items() if len(f)},
        },
        bool(means) and (min(means) > STRONG or ("partly" if max(means) > STRONG else False)),
        "exact rank against regions along the epochs of each run; strong means a mean above "
        f"{STRONG}; {_BOOTSTRAP} of the runs",
    )
    ratios = {
        f"exact / ({inputs + 1}·regions), mean": round(float(printed.mean()), 3),
        OVER_SEEDS: resampled(
            (history.exact_dimension / (inputs + 1) / history.sampled_regions).mean(_WITHIN)
        ),
        "exact / Σ min(samples, n_0 + 1), mean": round(float(tight.mean()), 3),
        "snapshots that attain Σ min": f"{100 * float((tight == 1).mean()):.1f} %",
        f"snapshots above {NEARLY} of Σ min": f"{100 * float((tight > NEARLY).mean()):.1f} %",
    }
    everywhere = "the exact rank of all runs and snapshots that have one"
    held = Claim(
        figure,
        f"functional dimension ≤ ({inputs} + 1)·regions sampled",
        {
            "violations": int((printed > 1).sum()),
            "violations of Σ min": int((tight > 1).sum()),
            "snapshots": len(rank),
        },
        bool((printed <= 1).all() and (tight <= 1).all()),
        everywhere,
    )
    slack = Claim(
        figure,
        f"functional dimension is well below ({inputs} + 1)·regions",
        ratios,
        bool(printed.mean() < WELL_BELOW),
        f"{everywhere}; well below means a mean ratio under {WELL_BELOW}; {_BOOTSTRAP} of the "
        "seeds, each one run on every data set",
    )
    more = Claim(
        figure,
        "the number of regions sampled is typically greater than the functional dimension",
        {
            "snapshots with more regions than dimensions": f"{100 * float((sampled > rank).mean()):.1f} "
            ""
            ""
            "%",
            "seeds": history.sizes["run"],
        },
        bool((sampled > rank).mean() > 0.5),
        f"{everywhere}; the paper says so of its experiments with one input",
    )
    return [correlation, held, slack, *([more] if inputs == 1 else [])]


def no_overfitting(figure: str, functions: xr.Dataset, one: xr.Dataset) -> Claim:
    """The learned functions do not overfit: r² against the noise-free function beside r² on the
    data.
    """
    measured, held = {}, []
    for name in functions.dataset.values:
        truth = functions.function.sel(dataset=name)
        learned = functions.learned.sel(dataset=name)
        clean = 1 - ((learned - truth) ** 2).sum("grid") / ((truth - truth.mean()) ** 2).sum()
        train = one.r_squared.sel(dataset=name, epoch=functions.epoch)
        measured[str(name)] = {
            str(int(e)): {"data": round(float(a), 3), "function": round(float(b), 3)}
            for e, a, b in zip(functions.epoch.values, train, clean, strict=True)
        }
        held.append(float(train[-1] - clean[-1]) < 0.02)
    return Claim(
        figure,
        "overparameterised networks do not overfit",
        measured,
        bool(all(held)),
        "r² on the 100 data and against the noise-free function on 501 points, one run",
    )


def initial_dimension(name: str, found: xr.Dataset) -> Claim:
    """The mean functional dimension of initial networks lies below the paper's number."""
    limit = LIMITS[name]
    single, exact = found.float32_dimension.values, found.exact_dimension.values
    below = [bool(values.mean() < limit) for values in (single, exact)]
    notes = {
        "bivariate": "the paper prints a 100×371 matrix for these 400 points; see the 100-point "
        "grid",
        "bivariate_100": "the 10×10 grid, which has the 100 rows that the paper prints",
    }
    return Claim(
        "Sec 6",
        f"the mean functional dimension at initialisation is below {limit} ({name}, "
        f"{found.attrs['samples']} samples)",
        {
            "float32": described(single),
            "float64": described(found.functional_dimension.values),
            "exact": described(exact),
            "float32 = exact": f"{100 * float((single == exact).mean()):.1f} %",
            "exact / region bound, mean": round(
                float((exact / found.region_bound.values).mean()), 3
            ),
        },
        below[0] if below[0] == below[1] else "partly",
        notes.get(name, "") or "mean ± 95 % interval (networks)",
    )
