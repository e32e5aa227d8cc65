"""Calls public functions with one bad argument each: every call must end in one sentence of ours, or
in an answer, within a time limit.

    PYTHONPATH=src python tools/bad_calls.py [--limit 20] [--every 1] [WORD …]

Prints each foreign error, each call without an end, each answer to a value that cannot be right, and
the counts. `--every 50` takes a fiftieth of the calls, as the tests do.
"""

import argparse
import inspect
import os
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
import numpy as np

import neuromanifold as nm

KEY = jax.random.key(0)
NET = nm.MLP((2, 3, 1))
SMOOTH = nm.MLP((2, 3, 1), "tanh")
LINEAR = nm.MLP((2, 2, 2), "identity", bias=False)
CONV = nm.LinearConvNet((2, 2), (1, 1))
X = np.random.default_rng(0).standard_normal((4, 2))
Y = np.ones((4, 1))
P = jax.tree.map(np.asarray, NET.init(key=KEY))
S = jax.tree.map(np.asarray, SMOOTH.init(key=KEY))
L = jax.tree.map(np.asarray, LINEAR.init(key=KEY))
FILTERS = (np.array([1.0, 2.0]), np.array([0.5, -1.0]))
V = np.asarray(CONV.end_to_end(FILTERS))
A = np.diag([2.0, 1.0])
ON = {"f": NET, "net": NET, "params": P, "x": X, "x1": X, "y": Y, "key": KEY}
SOFT = {**ON, "f": SMOOTH, "net": SMOOTH, "params": S}
CONVNET = {"net": CONV, "params": FILTERS, "v": V, "delta": np.zeros(1)}
MATRIX = {"A": A, "W": A, "depth": 3, "params": (A, A)}

VERBS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        [
            "activation_patterns", "alignment", "dimension_account", "dimension_bounds",
            "fixed_neurons", "functional_dimension", "hidden_equivalence", "inspect", "jacobian",
            "kernel_alignment", "kernel_flow", "largest_stable_lr", "ntk", "ntk_operator",
            "reduce_width", "sampled_regions", "spectrum", "symmetry_group", "linearize",
            "conserved_quantities", "infinite_ntk", "nngp", "describe", "regions.exact_signs",
            "regions.region_bound", "regions.theorem1_bound", "symmetry.channel_scalings",
            "symmetry.structural_symmetries", "tangent.spectral_density", "tangent.empirical_nngp",
            "tangent.single_precision_rank", "bottleneck.bottleneck_structure",
            "bottleneck.jacobian_rank", "bottleneck.norm_bound", "bottleneck.ntk_trace_by_layer",
            "bottleneck.balance", "bottleneck.balance_defect", "bottleneck.two_point_bound",
            "bottleneck.activation_bound", "bottleneck.kernel_curvature", "orbits.leaf_count",
        ],
        ON,
    ),
    **dict.fromkeys(
        [
            "sharpness", "tangent.gauss_newton_curvature", "tangent.output_hessian_norm",
            "condensation", "invariant_leaf", "invariant_leaves", "lie_closure", "symmetry.discover",
        ],
        SOFT,
    ),
    "train": {**ON, "epochs": 2},
    "gradient_flow": {**SOFT, "t1": 0.01},
    "tangent.curvatures": {**SOFT, "k": 1},
    "gram": {**ON, "store": "STORE"},
    "teleport": {"net": LINEAR, "params": L, "x": X, "y": X, "steps": 2},
    "bottleneck.planarity_bound": {**ON, "rank": 1},
    **dict.fromkeys(
        [f"functionspace.{name}" for name in (
            "fiber", "filter_jacobian", "filter_kernel", "is_smooth", "metric", "nearest_filter",
            "neuromanifold_dimension", "norm_differences", "rescale",
        )],
        CONVNET,
    ),
    "functionspace.search_fiber": {**CONVNET, "starts": 2},
    **dict.fromkeys(
        [f"functionspace.{name}" for name in (
            "balanced_factors", "balanced_operator", "dense_kernel", "end_to_end_matrix",
            "gram_differences",
        )],
        MATRIX,
    ),
    **dict.fromkeys(
        [f"bottleneck.{name}" for name in (
            "balanced_factors", "construction_norm", "cost_expansion", "log_plus",
            "pseudo_determinant", "representation_cost",
        )],
        MATRIX,
    ),
    "bottleneck.completely_positive": {"points": np.abs(X)},
    "bottleneck.folded_interpolant": {"dimension": 2, "folds": 2, "depth": 4},
    "bottleneck.polyline_interpolant": {"points": X, "depth": 4},
    "MLP": {"widths": (2, 3, 1)},
    "LinearConvNet": {"filter_shapes": (2, 2), "strides": (1, 1)},
    "leaky_relu": {"alpha": 0.1},
    "power": {"degree": 2},
}  # fmt: skip


def branching(params: Any, x: Any) -> Any:
    """A model that decides in Python by the values of its data."""
    return x if x.sum() > 0 else -x


def in_numpy(params: Any, x: Any) -> Any:
    """A model that leaves JAX."""
    return np.tanh(np.asarray(x))


def raising(params: Any, x: Any) -> Any:
    """A model with an error of its own."""
    raise KeyError("weights")


ANY: dict[str, Any] = {
    "an object": object(), "words": "words", "bytes": b"bytes", "a complex number": 1j,
    "a list of words": ["a", "b"], "an empty list": [], "an empty dictionary": {}, "a set": {1, 2},
    "nan": float("nan"), "inf": float("inf"), "a class": int, "a module": np, "minus one": -1,
    "10**12": 10**12, "two and a half": 2.5, "a complex array": np.ones((4, 2)) * 1j,
    "objects": np.array([object(), None]), "no samples": np.ones((0, 2)),
    "five axes": np.ones((1, 1, 1, 1, 2)), "a list of numbers": [1, 2], "None": None,
    "a function of nothing": lambda: None, "dates": np.array(["2020-01-01"], "datetime64[D]"),
}  # fmt: skip
MODELS = {"branches": branching, "NumPy": in_numpy, "raises": raising, "prints": print}
# What may be answered: values that the argument's meaning allows.
FINE = {
    "None", "two and a half", "minus one", "10**12", "inf", "a list of numbers", "an empty list",
    "an empty dictionary", "five axes", "words",
}  # fmt: skip


def found(name: str) -> Callable[..., Any]:
    """The public function of this name."""
    function: Any = nm
    for part in name.split("."):
        function = getattr(function, part)
    return function


def calls() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """(verb, argument, what is bad about it, all arguments)."""
    for verb, base in VERBS.items():
        signature = inspect.signature(found(verb))
        named = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
        given = {n: base[n] for n in named if n in base}
        optional = {"f", "net", "params", "x", "x1", "y", "key"} - {
            n for n in given if signature.parameters[n].default is inspect.Parameter.empty
        }
        given = {n: v for n, v in given.items() if n not in optional or n in ("x",)}
        for argument in named:
            # As many epochs as asked for take as long as they take.
            huge = {"10**12"} if argument in ("epochs", "steps", "starts", "keys", "chunk") else ()
            for way, value in (ANY | (MODELS if argument in ("f", "net") else {})).items():
                if way not in huge:
                    yield verb, argument, way, given | {argument: value}


class Endless(BaseException):
    """A call took longer than its limit."""


def ended(signal_: int, frame: FrameType | None) -> None:
    """The alarm."""
    raise Endless


def outcome(verb: str, arguments: dict[str, Any], limit: int) -> tuple[str, str]:
    """How a call ended, and what it said."""
    signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = {k: folder for k, v in arguments.items() if isinstance(v, str) and v == "STORE"}
            result = repr(found(verb)(**(arguments | store)))[:100]
    except Endless:
        return "endless", ""
    except (ValueError, TypeError, ArithmeticError, OSError) as error:
        said = str(error)
        clear = "`" in said and "\n" not in said and 0 < len(said) < 600
        return ("refused" if clear else "foreign"), f"{type(error).__name__}: {said[:300]}"
    except Exception as error:
        return "foreign", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "answered", result.replace("\n", " ")


def main() -> None:
    """Make the calls, print what is wrong, and the counts."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("words", nargs="*")
    ask.add_argument("--limit", type=int, default=30)
    ask.add_argument("--every", type=int, default=1)
    ask.add_argument("--answers", action="store_true", help="print answers too")
    asked = ask.parse_args()
    counts: Counter[str] = Counter()
    chosen = [c for c in calls() if not asked.words or any(w in c[0] for w in asked.words)]
    os.chdir(tempfile.mkdtemp())  # a store may be called 'words'
    for verb, argument, way, arguments in chosen[:: asked.every]:
        how, said = outcome(verb, arguments, asked.limit)
        counts[how] += 1
        if how in ("foreign", "endless") or (
            how == "answered" and way not in FINE and asked.answers
        ):
            print(f"{how:8} {verb}({argument}={way}): {said}", flush=True)
    print(dict(counts), sum(counts.values()))


if __name__ == "__main__":
    main()
