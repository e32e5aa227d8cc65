"""complexity, Sec. 5 and Figs. 1, 8: data sets, initialisation, optimiser and threshold, as
printed.
"""

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import numpy as np
import optax
import scipy.stats

from neuromanifold import data
from neuromanifold.data import energy
from neuromanifold.dynamics.optimizers import adam_l2
from neuromanifold.models.losses import mse
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.rank.dimension import single_precision_rank
from neuromanifold_papers.check import EPS, Check, at_least, at_most, equal, inside
from neuromanifold_papers.complexity import runs
from neuromanifold_papers.statement import control, in_float64, statement

SIGMAS = 5.0
"""Sampling tolerance: an estimate is off by more than this many standard errors once in two
million.
"""

# Each function is 1.5 + Σ amplitude · sin(frequency · π · coordinate): (amplitude, frequency,
# coordinate).
WAVES: dict[str, tuple[tuple[float, int, int], ...]] = {
    "f1": ((1.0, 2, 0),),
    "f2": ((1.0, 2, 0), (0.5, 4, 0)),
    "f3": ((1.0, 2, 0), (0.5, 4, 0), (0.4, 16, 0)),
    "g1": ((1.0, 2, 0), (1.0, 2, 1)),
    "g2": ((1.0, 2, 0), (1.0, 2, 1), (0.5, 4, 0)),
    "g3": ((1.0, 2, 0), (1.0, 2, 1), (0.5, 4, 0), (0.4, 4, 1)),
}
SIZES = {"f1": (100, 1, 1), "f2": (100, 1, 1), "f3": (100, 1, 1)}
SIZES |= {"g1": (400, 2, 1), "g2": (400, 2, 1), "g3": (400, 2, 1), "energy": (768, 8, 2)}
NOISE = 0.01
PRINTED_RUNS = {"univariate": (15, 50), "energy": (10, 25)}
PRINTED_RUNS |= {"decay": (10, 50), "bivariate": (20, 25)}
PRINTED_TRAINING = {"hidden widths": (10, 10, 10, 10), "learning rate": 0.01}
# The mean over all entries, as torch's MSELoss has it: (1² + 3²)/2.
PRINTED_TRAINING |= {"weight decay": 1e-4, "batch": 16, "loss of 1 and 3 against 0": 5.0}


def printed_function(name: str, x: np.ndarray) -> np.ndarray:
    """f_i or g_i at the rows of x."""
    terms = [amplitude * np.sin(k * np.pi * x[:, axis]) for amplitude, k, axis in WAVES[name]]
    return 1.5 + np.sum(terms, axis=0)


def _data_cases(rng: np.random.Generator, draws: int) -> Iterator[tuple[str, str]]:
    yield from (("shapes", name) for name in SIZES)
    noises = ("input mean", "input noise", "output mean", "output noise")
    yield from ((what, name) for name in ("f1", "f2", "f3") for what in noises)
    yield from ((what, name) for name in ("g1", "g2", "g3") for what in ("grid", "values"))


def noise_of(name: str, function: Any = printed_function) -> tuple[np.ndarray, np.ndarray]:
    """What was added to the inputs and to the outputs of a univariate data set, at 100 equally
    spaced points.
    """
    found, grid = data.load(name), np.linspace(0.0, 1.0, 100)[:, None]
    return found.x - grid, found.y - function(name, grid)[:, None]


def grid_distance(x: np.ndarray) -> float:
    """How far the rows are from the 20×20 equally spaced points of [0, 1]², each taken once."""
    line = np.linspace(0.0, 1.0, 20)
    wanted = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    order = np.lexsort(np.round(x, 9).T[::-1])
    return float(np.abs(x[order] - wanted).max())


@in_float64(
    "setup (data)",
    _data_cases,
    control(
        "f1's outputs against f3",
        lambda: ("output noise", "f1"),
        function=lambda name, x: printed_function("f3", x),
    ),
)
def _data(case: tuple[str, str], function: Any = printed_function) -> Check:
    """f1, f2, f3 at 100 equally spaced points with noise of mean 0 and std 0.01 on inputs and
    outputs, g1, g2, g3 on the 20×20 grid without, energy 768×8 with two targets.
    """
    what, name = case
    check = partial(equal, hypotheses={"data": name, "checked": what})
    if name == "energy" and energy.find() is None:
        return check(0, 0, drops=inside("the energy data are not on this machine"))
    found = data.load(name)
    if what == "shapes":
        samples, features, targets = SIZES[name]
        pairs = zip(
            (samples, features, samples, targets), found.x.shape + found.y.shape, strict=True
        )
        return check(sum(a != b for a, b in pairs), 0)
    if what == "grid":
        return check(grid_distance(found.x), 0.0, 64 * EPS)
    if what == "values":
        error = np.abs(found.y[:, 0] - function(name, found.x)).max()
        return check(float(error), 0.0, 64 * EPS)
    noise = noise_of(name, function)[int(what.startswith("output"))]
    if what.endswith("mean"):
        return check(float(noise.mean()) / NOISE, 0.0, SIGMAS / noise.size**0.5)
    return check(float(noise.std()) / NOISE, 1.0, SIGMAS / (2 * noise.size) ** 0.5)


FAN_INS = (1, 2, 8, 10)
"""Of the experiments' layers."""
_TESTS = ("mean", "mean square", "distance from the normal distribution")


@cache
def drawn(fan_in: int) -> list[tuple[str, int, np.ndarray]]:
    """All weights, and all biases, of both layers of one network (fan_in, 5000 | 5), with their
    fan_in.
    """
    widths = (fan_in, 5000, 5)
    params = MLP(widths).init(key=jax.random.key(5), scheme="he_bias")
    return [
        (part, inputs, np.asarray(array, np.float64).ravel())
        for pair, inputs in zip(params, widths[:-1], strict=True)
        for part, array in zip(("weights", "biases"), pair, strict=True)
    ]


@in_float64(
    "setup (initialisation)",
    lambda rng, draws: product(FAN_INS, range(3), _TESTS),
    control(
        "1/fan_in in place of 2/fan_in",
        lambda: (10, 0, "mean square"),
        factor=1,
    ),
)
def initialisation(case: tuple[int, int, str], factor: int = 2) -> Check:
    """All weights and all biases of a layer are drawn from N(0, 2/fan_in).

    Standard normal after division: mean 0, mean square 1, √n times the Kolmogorov–Smirnov
    distance at most 2.7.

    The last is exceeded once in a million.
    """
    first, index, test = case
    part, fan_in, found = drawn(first)[index]
    values = found / (factor / fan_in) ** 0.5
    check = partial(equal, hypotheses={"fan_in": fan_in, "part": part, "test": test})
    if test == "mean":
        return check(float(values.mean()), 0.0, SIGMAS / values.size**0.5)
    if test == "mean square":
        return check(float((values**2).mean()), 1.0, SIGMAS * (2 / values.size) ** 0.5)
    distance = float(scipy.stats.kstest(values, "norm").statistic)
    return check(distance, 0.0, 2.7 / values.size**0.5)


def torch_adam(gradients: np.ndarray, start: np.ndarray, rate: float, decay: float) -> np.ndarray:
    """Adam as torch's: the decay enters the gradient, then moments 0.9 and 0.999 with bias
    correction, ε = 1e-8 outside the root.
    """
    theta, m, v = start, np.zeros_like(start), np.zeros_like(start)
    for t, gradient in enumerate(gradients, start=1):
        g = gradient + decay * theta
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta = theta - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return theta


def library_adam(gradients: np.ndarray, start: np.ndarray, rate: float, decay: float) -> np.ndarray:
    """The same steps by `adam_l2`."""
    with arithmetic():
        optimizer, theta = adam_l2(rate, decay), jax.numpy.asarray(start)
        state = optimizer.init(theta)
        for gradient in gradients:
            update, state = optimizer.update(jax.numpy.asarray(gradient), state, theta)
            theta = optax.apply_updates(theta, update)
        return np.asarray(theta)


def _adam_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for decay in (0.0, 1e-4, 1e-3, 0.1):
        yield rng.standard_normal((5, 40)), rng.standard_normal(40), 0.01, decay


@in_float64(
    "setup (optimiser)",
    _adam_cases,
    control(
        "the decay apart from the moments (AdamW), 0.1",
        lambda: list(_adam_cases(np.random.default_rng(0), 0))[-1],
        # To first order: the decay shrinks θ and stays out of the moments.
        printed=lambda g, start, rate, decay: (
            torch_adam(g, start, rate, 0.0) - rate * decay * start
        ),
    ),
)
def optimiser(case: Any, printed: Any = torch_adam) -> Check:
    """Adam with the weight decay as an L2 term in the gradient, as torch's Adam has it."""
    gradients, start, _, decay = case
    error = np.abs(library_adam(*case) - printed(*case)).max()
    scale = np.abs(start).max()
    return at_most(float(error / scale), 0.0, 64 * EPS * len(gradients), weight_decay=decay)


@statement(
    "setup (study)",
    lambda rng, draws: [*PRINTED_TRAINING.items(), *PRINTED_RUNS.items()],
    control("the sum instead of the mean of squares", lambda: ("loss of 1 and 3 against 0", 10.0)),
)
def study(case: tuple[str, Any]) -> Check:
    """Four hidden layers of 10, rate 0.01, weight decay 1e-4, batches of 16, MSE; runs / probe
    interval 15/50, 10/25, 10/50, 20/25.
    """
    name, printed = case
    ours = {
        "hidden widths": runs.HIDDEN,
        "learning rate": runs.LEARNING_RATE,
        "weight decay": runs.WEIGHT_DECAY,
        "batch": runs.BATCH,
        "loss of 1 and 3 against 0": float(mse(np.array([[1.0], [3.0]]), np.zeros((2, 1)))),
    } | {e.name: (e.runs, e.every) for e in runs.EXPERIMENTS["paper"]}
    return equal(int(ours[name] == printed), 1, constant=name)


@in_float64(
    "setup (threshold)",
    lambda rng, draws: [(2, 3), (100, 4)],
    control(
        "min(n, m) instead of max, 100×4",
        lambda: (100, 4),
        side=min,
    ),
)
def _threshold(shape: tuple[int, int], side: Any = max) -> Check:
    """The reported rank counts singular values above max(n, m)·σ_max·1.19e-7 in float32."""
    rows, columns = shape
    rng = np.random.default_rng(list(shape))
    x = rng.standard_normal((rows, columns))
    rank = single_precision_rank(lambda params, x: x @ params, np.ones((columns, 1)), x)
    found = float(rank.threshold) / float(np.max(rank.spectrum))
    return equal(found / (side(shape) * 2.0**-23), 1.0, 4 * 2.0**-23, rows=rows, columns=columns)


def variation(name: str) -> float:
    """Total variation of f_i on [0, 1], or the mean length of the gradient of g_i on [0, 1]²."""
    if name.startswith("f"):
        values = printed_function(name, np.linspace(0, 1, 2001)[:, None])
        return float(np.abs(np.diff(values)).sum())
    line = np.linspace(0, 1, 201)
    s, t = np.meshgrid(line, line, indexing="ij")
    values = printed_function(name, np.stack([s.ravel(), t.ravel()], axis=1)).reshape(s.shape)
    return float(np.hypot(*np.gradient(values, line, line)).mean())


def _more_complex(case: tuple[str, str]) -> Check:
    simple, complicated = map(variation, case)
    return at_least(complicated / simple, 1.0, pair=", ".join(case))


figure_1 = in_float64(
    "Fig 1",
    lambda rng, draws: [("f1", "f2"), ("f2", "f3")],
    control("f3 before f1", lambda: ("f3", "f1"), passes=lambda: ("f1", "f1")),
    says="f1, f2, f3 are of increasing complexity (total variation on [0, 1])",
)(_more_complex)
figure_8 = in_float64(
    "Fig 8",
    lambda rng, draws: [("g1", "g2"), ("g2", "g3")],
    control("g3 before g1", lambda: ("g3", "g1"), passes=lambda: ("g1", "g1")),
    says="g1, g2, g3 are of increasing complexity (mean length of the gradient on [0, 1]²)",
)(_more_complex)
