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
from neuromanifold_papers.check import Check, inside
from neuromanifold_papers.recorded import Claims, StudyCases, read_claims
from neuromanifold_papers.riemann import flows
from neuromanifold_papers.riemann.statements.algebra import composed_matrix
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.exact import (
    EPS,
    gaussian_filters,
    hypotheses,
    integer_filters,
    line_nets,
    rank,
    show_filters,
)
from neuromanifold_papers.statement import Control, Statement


def data_nets() -> list[LinearConvNet]:
    """Sizes 2–4 (H ≤ 2), 2–3 (H = 3), inner strides 1–3."""
    return [*line_nets((2, 3, 4), (1, 2, 3), (1, 2)), *line_nets((2, 3), (1, 2), (3,))]


def integer_data(
    net: LinearConvNet, rng: np.random.Generator, samples: int, output: int
) -> tuple[Any, Any]:
    """Integer signals and targets, of a range that makes coincidences improbable."""
    (signal,) = net.signal_shape(output)
    return rng.integers(-9999, 10000, (samples, signal)), rng.integers(
        -9999, 10000, (samples, output)
    )


def patches(net: LinearConvNet, x: np.ndarray, output: int) -> np.ndarray:
    """The windows of the signals that the end-to-end filter meets, one row each."""
    (k,), (s,) = net.end_to_end_shape, net.end_to_end_stride
    return np.array([signal[i * s : i * s + k] for signal in x for i in range(output)]).astype(
        object
    )


def _data_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in data_nets():
        k = net.end_to_end_shape[0]
        for samples, output in ((k, 1), (k, 3), (k + 4, 2)):
            x, y = integer_data(net, rng, samples, output)
            yield net, integer_filters(net, rng), x, y


def _quadratic(case: Any, shift: float = 0.0) -> Check:
    net, params, x, y = case
    output = y.shape[1]
    predicted = x.astype(object) @ composed_matrix(net, params, (output,)).T
    direct = float(((predicted - y) ** 2).sum())
    loss = fs.filter_loss(net, x, y)
    v = np.asarray(net.end_to_end(params), float)
    spectrum = np.linalg.eigvalsh(loss.A)
    return Check(
        (loss(v) + shift * direct) / direct,
        1.0,
        tolerance=64 * EPS * float(spectrum[-1] / spectrum[0]),
        hypotheses=hypotheses(
            net, samples="k" if len(x) == net.end_to_end_shape[0] else "k + 4", outputs=output
        ),
    )


LOSS = Statement(
    paper="riemann",
    row="Lem 18, ℓ_{A,u}",
    id="ℓ_{A,u}",
    says="N ≥ k: the squared error of the network is (v − u)ᵀA(v − u) plus a constant of the "
    "data, v the end-to-end filter",
    method="float64",
    cases=_data_cases,
    measure=_quadratic,
    control=Control(
        "half of the loss added",
        case=lambda: next(_data_cases(np.random.default_rng(0), 0)),
        breaks={"shift": 0.5},
    ),
    show=lambda case: show_filters(case[:2]),
)


def _definite(case: Any) -> Check:
    net, _, x, y = case
    return Check(
        rank(patches(net, x, y.shape[1])),
        net.end_to_end_shape[0],
        hypotheses=hypotheses(net, N=len(x)),
    )


DEFINITE = Statement(
    paper="riemann",
    row="Lem 18, ℓ_{A,u}",
    id="ℓ_{A,u} (definite)",
    says="N ≥ k: for almost all inputs A is positive definite",
    method="exact",
    cases=_data_cases,
    measure=_definite,
    control=Control(
        "N = k − 1 samples with one output",
        case=lambda: (RUNNING, None, *integer_data(RUNNING, np.random.default_rng(0), 4, 1)),
    ),
    exhaustive="sizes 2–4 (H ≤ 2), 2–3 (H = 3), inner strides 1–3, N = k and k + 4: full rank at "
    "one data set is full rank at almost all",
    show=lambda case: show_filters(case[:2]),
)


def paired(case: Any) -> Check:
    """Whether J_θᵀAu = J_θᵀPᵀy, P the patches, has an entry that is not zero."""
    net, params, x, y = case
    w = patches(net, x, y.shape[1]).T @ y.astype(object).ravel()
    return Check(
        int((fs.filter_jacobian(net, params).T @ w).any()), 1, hypotheses=hypotheses(net, N=len(x))
    )


def _theta_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in data_nets():
        for size in (1, 1, 9):
            x, y = integer_data(net, rng, net.end_to_end_shape[0], 1)
            yield net, integer_filters(net, rng, size), x, y
    x, y = integer_data(RUNNING, rng, 5, 1)
    yield RUNNING, (np.array([1, 0, 1], object), np.array([1, 1], object)), x, y


def _zero_filters() -> Any:
    x, y = integer_data(RUNNING, np.random.default_rng(0), 5, 1)
    return RUNNING, (np.zeros(3, object), np.zeros(2, object)), x, y


LEM_18 = Statement(
    paper="riemann",
    row="Lem 18, ℓ_{A,u}",
    id="Lem 18",
    says="nonzero filters, N ≥ k: for almost all data Au is not orthogonal to the image of d_θμ",
    method="exact",
    cases=_theta_cases,
    measure=paired,
    control=Control("both filters zero", case=_zero_filters),
    show=lambda case: show_filters(case[:2]),
)


def pairing_matrix(net: LinearConvNet, w: np.ndarray) -> np.ndarray:
    """B with aᵀBb = wᵀμ(a, b) for two layers: B_ij = w_{i + s_1 j}. w is orthogonal to the image
    of d_{(a,b)}μ when Bb = 0, Bᵀa = 0.
    """
    (k1,), (k2,) = net.filter_shapes
    t = net.dilations[1][0]
    return np.array([[w[i + t * j] for j in range(k2)] for i in range(k1)], object)


def _uniform(case: Any) -> Check:
    net, w = case
    return Check(
        rank(pairing_matrix(net, w)),
        min(k for (k,) in net.filter_shapes),
        hypotheses=hypotheses(net),
    )


def _uniform_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in line_nets((2, 3, 4, 5), (1, 2, 3), (2,)):
        x, y = integer_data(net, rng, net.end_to_end_shape[0], 1)
        yield net, patches(net, x, 1).T @ y.astype(object).ravel()


def normal(v: np.ndarray) -> np.ndarray:
    """The gradient of v_0v_3² + v_1²v_4 − v_1v_2v_3, normal to the running example's M."""
    return np.array(
        [
            v[3] ** 2,
            2 * v[1] * v[4] - v[2] * v[3],
            -v[1] * v[3],
            2 * v[0] * v[3] - v[1] * v[2],
            v[1] ** 2,
        ],
        object,
    )


LEM_18_UNIFORM = Statement(
    paper="riemann",
    row="Lem 18, ℓ_{A,u}",
    id="Lem 18 (all θ)",
    says="as the proof of P 8 uses it: for almost all data Au is orthogonal to the image of d_θμ "
    "for no θ with nonzero filters",
    method="exact",
    cases=_uniform_cases,
    measure=_uniform,
    control=Control(
        "a normal vector of M in place of Au",
        case=lambda: (
            RUNNING,
            normal(RUNNING.end_to_end((np.array([1, 2, 3]), np.array([1, 10])))),
        ),
    ),
    exhaustive="two layers, sizes 2–5, strides 1–3: (a, b) exists exactly when the pairing matrix "
    "has rank below both sizes, and full "
    "rank at one data set is full rank at almost all",
    narrower="two layers",
    show=lambda case: f"nm.{case[0]!r}, np.array({case[1].tolist()})",
)


def _limit_cases(nets: Any) -> Any:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        for index in range(draws):
            net = nets[index % len(nets)]
            yield net, gaussian_filters(net, rng), flows.data_loss(net, rng)

    return cases


Limits = Callable[[LinearConvNet, Any, fs.FilterLoss], flows.Limit]


def _ends(case: Any, limit: Limits = flows.flow_limit) -> Check:
    """‖∇L‖ at the limit relative to ‖J‖‖∇ℓ(0)‖: where J has rank dim M it vanishes exactly where
    v is critical on M.
    """
    net, params, loss = case
    J, slope = fs.filter_jacobian(net, params), loss.gradient(net.end_to_end(params)).ravel()
    at_zero = loss.gradient(np.zeros(net.end_to_end_shape))
    start = float(np.linalg.norm(J.T @ slope) / (np.linalg.norm(J) * np.linalg.norm(at_zero)))
    return _critical(limit(net, params, loss), start, hypotheses(net, N="k"))


def _critical(
    limit: flows.Limit, start: float = 1.0, covered: dict[str, Any] | None = None
) -> Check:
    """Not a number where the limit is not a smooth point of M."""
    gradient = limit.gradient if limit.smooth else float("nan")
    return Check(gradient, 0.0, tolerance=_SETTLED * max(start, 1.0), hypotheses=covered or {})


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


_ZERO_TARGETS = Control(
    "all targets zero: the flow ends at the zero filter",
    case=lambda: next(_limit_cases([RUNNING])(np.random.default_rng(0), 1)),
    breaks={"limit": lambda net, params, loss: _zero_targets()},
)
THM_7 = Statement(
    paper="riemann",
    row="Thm 7, P 8",
    id="Thm 7",
    says="D = 1, inner strides above one, N ≥ k, generic data and start: the flow ends at a "
    "smooth point of M that is critical for "
    "the loss on M",
    method="integration",
    cases=_limit_cases(_STRIDED),
    measure=_ends,
    control=_ZERO_TARGETS,
    draws=4,
    show=lambda case: show_filters(case[:2]),
    narrower="flows from Gaussian filters until the gradient has fallen by ten orders",
)


def _measured(figure: str) -> Any:
    def pick(claims: Claims) -> list[str]:
        return [claim["measured"] for claim in claims if claim["figure"] == figure]

    return pick


_NOT_MEASURED = "the study did not measure it"


def _of_all(measured: str) -> Check:
    """'60 of 60 flows': both numbers."""
    found = re.match(r"(\d+) of (\d+) flows", measured)
    if found is None:
        return Check(0, 0, drops=inside(_NOT_MEASURED))
    good, total = map(int, found.groups())
    drops = inside(_NOT_MEASURED, when=total == 0)
    return Check(good, total, hypotheses={"flows": total}, cases=total, drops=drops)


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


THM_7_STUDY = Statement(
    paper="riemann",
    row="Thm 7, P 8",
    id="Thm 7 (many flows)",
    says="in the study, every flow of five networks with strides above one ends at a smooth "
    "nonzero critical point",
    method="training",
    cases=StudyCases("riemann", _measured("Thm 7, Prop 8")),
    measure=_of_all,
    control=Control("strides of one, where some limits drop rank", case=_stride_one),
)


def _ends_away_from_zero(case: Any, limit: Limits = flows.flow_limit) -> Check:
    net, params, loss = case
    return Check(limit(net, params, loss).size, _NOT_ZERO, ">=", hypotheses=hypotheses(net, N="k"))


P_8 = Statement(
    paper="riemann",
    row="Thm 7, P 8",
    id="P 8",
    says="D = 1, any strides, N ≥ k, generic data and start: the flow does not end at the zero "
    "filter",
    method="integration",
    cases=_limit_cases(_ANY),
    measure=_ends_away_from_zero,
    control=_ZERO_TARGETS,
    draws=3,
    show=lambda case: show_filters(case[:2]),
    narrower="flows from Gaussian filters until the gradient has fallen by ten orders",
)
P_8_STUDY = Statement(
    paper="riemann",
    row="Thm 7, P 8",
    id="P 8 (many flows)",
    says="in the study, every flow of two networks with stride one ends away from the zero filter",
    method="training",
    cases=StudyCases("riemann", _measured("Prop 8")),
    measure=_of_all,
    control=Control("all targets zero: the flow ends at zero", case=_study_of_zero_targets),
)

GROUP = (LOSS, DEFINITE, LEM_18, LEM_18_UNIFORM, THM_7, THM_7_STUDY, P_8, P_8_STUDY)
