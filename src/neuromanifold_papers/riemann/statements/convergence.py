"""`riemann`, ℓ_{A,u}, Lem 18, Thm 7, P 8: the squared error in filter space and where gradient
flow ends.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, equal, inside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.riemann import flows
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.algebra import composed_matrix
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.running import printed_normal
from neuromanifold_papers.statement import control


def data_nets() -> list[LinearConvNet]:
    """Sizes 2–4 (H ≤ 2), 2–3 (H = 3), inner strides 1–3."""
    return [*exact.all_nets((2, 3, 4), (1, 2, 3), (1, 2)), *exact.all_nets((2, 3), (1, 2), (3,))]


def integer_data(
    net: LinearConvNet, rng: np.random.Generator, samples: int, output: int
) -> tuple[Any, Any]:
    """Integer signals and targets, of a range that makes coincidences improbable."""
    (signal,) = net.signal_shape(output)
    x, y = (rng.integers(-9999, 10000, (samples, size)) for size in (signal, output))
    return x, y


def patches(net: LinearConvNet, x: np.ndarray, output: int) -> np.ndarray:
    """The windows of the signals that the end-to-end filter meets, one row each."""
    (k,), (s,) = net.end_to_end_shape, net.end_to_end_stride
    return np.array([signal[i * s : i * s + k] for signal in x for i in range(output)], object)


def _data_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in data_nets():
        k = net.end_to_end_shape[0]
        for samples, output in ((k, 1), (k, 3), (k + 4, 2)):
            x, y = integer_data(net, rng, samples, output)
            yield net, exact.integer_filters(net, rng), x, y


@exact.in_float64(
    "ℓ_{A,u}",
    _data_cases,
    control(
        "half of the loss added", lambda: next(_data_cases(np.random.default_rng(0), 0)), shift=0.5
    ),
)
def quadratic(case: Any, shift: float = 0.0) -> Check:
    """N ≥ k: the squared error of the network is (v − u)ᵀA(v − u) plus a constant of the data, v
    the end-to-end filter.
    """
    net, params, x, y = case
    output = y.shape[1]
    predicted = x.astype(object) @ composed_matrix(net, params, (output,)).T
    direct = float(((predicted - y) ** 2).sum())
    loss = fs.filter_loss(net, x, y)
    v = np.asarray(net.end_to_end(params), float)
    spectrum = np.linalg.eigvalsh(loss.A)
    rounding = 64 * exact.EPS * float(spectrum[-1] / spectrum[0])
    samples = "k" if len(x) == net.end_to_end_shape[0] else "k + 4"
    ratio = (loss(v) + shift * direct) / direct
    return equal(ratio, 1.0, rounding, samples=samples, outputs=output)


@exact.statement(
    "ℓ_{A,u} (definite)",
    _data_cases,
    control(
        "N = k − 1 samples with one output",
        lambda: (RUNNING, None, *integer_data(RUNNING, np.random.default_rng(0), 4, 1)),
    ),
)
def definite(case: Any) -> Check:
    """N ≥ k: for almost all inputs A is positive definite."""
    net, _, x, y = case
    return equal(exact.rank(patches(net, x, y.shape[1])), net.end_to_end_shape[0], N=len(x))


def _theta_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in data_nets():
        for size in (1, 1, 9):
            x, y = integer_data(net, rng, net.end_to_end_shape[0], 1)
            yield net, exact.integer_filters(net, rng, size), x, y
    x, y = integer_data(RUNNING, rng, 5, 1)
    yield RUNNING, (np.array([1, 0, 1], object), np.array([1, 1], object)), x, y


@exact.statement(
    "Lem 18",
    _theta_cases,
    control(
        "both filters zero",
        lambda: (
            RUNNING,
            (np.zeros(3, object), np.zeros(2, object)),
            *integer_data(RUNNING, np.random.default_rng(0), 5, 1),
        ),
    ),
)
def lem_18(case: Any) -> Check:
    """Nonzero filters, N ≥ k: for almost all data Au is not orthogonal to the image of d_θμ.

    Whether J_θᵀAu = J_θᵀPᵀy, P the patches, has an entry that is not zero.
    """
    net, params, x, y = case
    w = patches(net, x, y.shape[1]).T @ y.astype(object).ravel()
    return equal(int((fs.filter_jacobian(net, params).T @ w).any()), 1, N=len(x))


def pairing_matrix(net: LinearConvNet, w: np.ndarray) -> np.ndarray:
    """B with aᵀBb = wᵀμ(a, b) for two layers: B_ij = w_{i + s_1 j}. w is orthogonal to the image
    of d_{(a,b)}μ when Bb = 0, Bᵀa = 0.
    """
    (k1,), (k2,) = net.filter_shapes
    t = net.dilations[1][0]
    return np.array([[w[i + t * j] for j in range(k2)] for i in range(k1)], object)


def _uniform_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in exact.all_nets((2, 3, 4, 5), (1, 2, 3), (2,)):
        x, y = integer_data(net, rng, net.end_to_end_shape[0], 1)
        yield net, patches(net, x, 1).T @ y.astype(object).ravel()


@exact.statement(
    "Lem 18 (all θ)",
    _uniform_cases,
    control(
        "a normal vector of M in place of Au",
        lambda: (
            RUNNING,
            printed_normal(RUNNING.end_to_end((np.array([1, 2, 3]), np.array([1, 10])))),
        ),
    ),
)
def lem_18_uniform(case: Any) -> Check:
    """As the proof of P 8 uses it: for almost all data Au is orthogonal to the image of d_θμ for
    no θ with nonzero filters.
    """
    net, w = case
    return equal(exact.rank(pairing_matrix(net, w)), min(exact.sizes_of(net)))


Limits = Callable[[LinearConvNet, Any, fs.FilterLoss], flows.Limit]


# The flow is stopped when the gradient has fallen by ten orders from its start; J may have shrunk
# since by up to two.
_SETTLED = 1e-8
_NOT_ZERO = 1e-4
_STRIDED = [
    LinearConvNet((2, 2), (2, 1)),
    RUNNING,
    LinearConvNet((4, 3), (2, 1)),
    LinearConvNet((2, 2, 2), (2, 2, 1)),
]
_ANY = [RUNNING, LinearConvNet((2, 2), (1, 1)), LinearConvNet((3, 2), (1, 1))]


@cache
def _zero_targets() -> flows.Limit:
    return flows.control_limit()


_ZERO_TARGETS = control(
    "all targets zero: the flow ends at the zero filter",
    lambda: next(exact.gaussian_cases([RUNNING], flows.data_loss)(np.random.default_rng(0), 1)),
    limit=lambda net, params, loss: _zero_targets(),
)


@exact.by_integration(
    "Thm 7", exact.gaussian_cases(_STRIDED, flows.data_loss), _ZERO_TARGETS, draws=4
)
def thm_7(case: Any, limit: Limits = flows.flow_limit) -> Check:
    """D = 1, inner strides above one, N ≥ k, generic data and start: the flow ends at a smooth
    point of M that is critical for the loss on M.

    ‖∇L‖ at the limit relative to ‖J‖‖∇ℓ(0)‖: where J has rank dim M it vanishes exactly where
    v is critical on M. Not a number where the limit is not a smooth point of M.
    """
    net, params, loss = case
    J, slope = fs.filter_jacobian(net, params), loss.gradient(net.end_to_end(params)).ravel()
    at_zero = loss.gradient(np.zeros(net.end_to_end_shape))
    start = float(np.linalg.norm(J.T @ slope) / (np.linalg.norm(J) * np.linalg.norm(at_zero)))
    end = limit(net, params, loss)
    gradient = end.gradient if end.smooth else float("nan")
    return equal(gradient, 0.0, _SETTLED * max(start, 1.0), N="k")


def _measured(figure: str) -> Any:
    def pick(claims: Claims) -> list[str]:
        return [claim["measured"] for claim in claims if claim["figure"] == figure]

    return pick


_NOT_MEASURED = "the study did not measure it"


def _of_all(measured: str) -> Check:
    """'60 of 60 flows': both numbers."""
    found = re.match(r"(\d+) of (\d+) flows", measured)
    if found is None:
        return equal(0, 0, drops=inside(_NOT_MEASURED))
    good, total = map(int, found.groups())
    drops = inside(_NOT_MEASURED, when=total == 0)
    return equal(good, total, cases=total, drops=drops, flows=total)


def _note(figure: str, pattern: str) -> str:
    """A number that the recorded study notes beside a claim."""
    (note,) = [claim["note"] for claim in read_claims("riemann") if claim["figure"] == figure]
    found = re.search(pattern, note)
    assert found is not None
    return found.group(1)


def _stride_one() -> str:
    """The study's flows at stride one, outside the theorem: some end where dμ drops rank."""
    (flows_,) = [
        claim["measured"] for claim in read_claims("riemann") if claim["figure"] == "Prop 8"
    ]
    total = int(flows_.split()[2])
    dropped = int(_note("Prop 8", r"(\d+) limits lie where"))
    return f"{total - dropped} of {total} flows"


def _study_of_zero_targets() -> str:
    """The study's one flow with all targets zero."""
    size = float(_note("Thm 7, Prop 8", r"falls to (\S+) of"))
    return f"{int(size > _NOT_ZERO)} of 1 flows"


thm_7_study = exact.by_training(
    "Thm 7 (many flows)",
    StudyCases("riemann", _measured("Thm 7, Prop 8")),
    control("strides of one, where some limits drop rank", _stride_one),
    says="in the study, every flow of five networks with strides above one ends at a smooth nonzero critical point",
)(_of_all)


@exact.by_integration("P 8", exact.gaussian_cases(_ANY, flows.data_loss), _ZERO_TARGETS, draws=3)
def p_8(case: Any, limit: Limits = flows.flow_limit) -> Check:
    """D = 1, any strides, N ≥ k, generic data and start: the flow does not end at the zero
    filter.
    """
    net, params, loss = case
    return at_least(limit(net, params, loss).size, _NOT_ZERO, N="k")


p_8_study = exact.by_training(
    "P 8 (many flows)",
    StudyCases("riemann", _measured("Prop 8")),
    control("all targets zero: the flow ends at zero", _study_of_zero_targets),
    says="in the study, every flow of two networks with stride one ends away from the zero filter",
)(_of_all)
