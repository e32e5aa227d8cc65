"""Five hundred bad inputs: every public verb and command answers each with one sentence, none
with a traceback or in silence.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import cast
import neuromanifold as nm
from commands import run

NET = nm.MLP((2, 3, 1))
PARAMS = tuple(
    nm.Layer(np.asarray(l.weight), np.asarray(l.bias)) for l in NET.init(key=jax.random.key(0))
)
X = np.random.default_rng(0).standard_normal((4, 2))
Y = np.ones((4, 1))

VERBS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "activation_patterns": nm.activation_patterns,
    "alignment": lambda f, params, x: nm.alignment(f, params, x, Y),
    "dimension_account": nm.dimension_account,
    "dimension_bounds": nm.dimension_bounds,
    "exact_signs": nm.regions.exact_signs,
    "fixed_neurons": nm.fixed_neurons,
    "functional_dimension": nm.functional_dimension,
    "functional_dimension, exact": lambda f, params, x: nm.functional_dimension(
        f, params, x, exact=True
    ),
    "gradient_flow": lambda f, params, x: nm.gradient_flow(f, params, x, Y, t1=0.1),
    "gram": lambda f, params, x: nm.gram(f, params, x, store="/nonexistent/never/written"),
    "inspect": nm.inspect,
    "features": lambda f, params, x: nm.features(f, params, x, key=jax.random.key(0), k=4),
    "influence": lambda f, params, x: nm.influence(f, params, x, Y, X, ridge=0.1),
    "jacobian": nm.jacobian,
    "kernel_alignment": lambda f, params, x: nm.kernel_alignment(f, params, x, Y),
    "kernel_flow": lambda f, params, x: nm.kernel_flow(f, params, x, Y),
    "largest_stable_lr": lambda f, params, x: nm.largest_stable_lr(f, params, x, Y),
    "learning_coefficient": lambda f, params, x: nm.learning_coefficient(
        f, params, x, Y, key=jax.random.key(0), chains=2, draws=4
    ),
    "ntk": nm.ntk,
    "ntk_operator": nm.ntk_operator,
    "reduce_width": nm.reduce_width,
    "sampled_regions": nm.sampled_regions,
    "sharpness": lambda f, params, x: nm.sharpness(f, params, x, Y),
    "spectrum": nm.spectrum,
    "train": lambda f, params, x: nm.train(f, params, x, Y, key=jax.random.key(0), epochs=1),
}


def spoilt(value: Any, at: int) -> np.ndarray:
    x = X.copy()
    x.flat[at % x.size] = value
    return x


def leaf(change: Callable[[Any], Any], at: int) -> Any:
    """The parameters with one of their four arrays changed."""
    leaves, tree = jax.tree.flatten(PARAMS)
    leaves[at % 4] = change(leaves[at % 4])
    return jax.tree.unflatten(tree, leaves)


SPOIL: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {
    "x: nan": lambda at: (NET, PARAMS, spoilt(np.nan, at)),
    "x: inf": lambda at: (NET, PARAMS, spoilt(-np.inf, at)),
    "x: features": lambda at: (NET, PARAMS, np.ones((4, 3 + at % 5))),
    "x: no samples": lambda at: (NET, PARAMS, np.ones((0, 2))),
    "x: a number": lambda at: (NET, PARAMS, float(at)),
    "x: a list of words": lambda at: (NET, PARAMS, [["a", "b"]] * 4),
    "x: None": lambda at: (NET, PARAMS, None),
    "x: complex": lambda at: (NET, PARAMS, X + 1j * (at + 1)),
    "x: masked": lambda at: (
        NET,
        PARAMS,
        np.ma.masked_array(X, np.arange(8).reshape(4, 2) == at % 8),
    ),
    "x: long double": lambda at: (NET, PARAMS, X.astype(np.longdouble) + np.longdouble("1e-18")),
    "x: beyond 2^53": lambda at: (NET, PARAMS, np.full((4, 2), 2**53 + 1 + 2 * (at % 1000))),
    "x: objects": lambda at: (NET, PARAMS, np.array([[object()] * 2] * 4)),
    "params: nan": lambda at: (NET, leaf(lambda a: np.full_like(a, np.nan), at), X),
    "params: inf": lambda at: (NET, leaf(lambda a: np.full_like(a, np.inf), at), X),
    "params: shape": lambda at: (NET, leaf(lambda a: np.ones((*a.shape, 2)), at), X),
    "params: a layer less": lambda at: (NET, PARAMS[:1], X),
    "params: None": lambda at: (NET, None, X),
    "params: words": lambda at: (NET, leaf(lambda a: "weights", at), X),
    "params: complex": lambda at: (NET, leaf(lambda a: a + 1j, at), X),
    "params: empty": lambda at: (NET, (), X),
    "f: a number": lambda at: (at, PARAMS, X),
    "f: None": lambda at: (None, PARAMS, X),
    "f: another network": lambda at: (nm.MLP((2, 4 + at % 3, 1)), PARAMS, X),
}
VALID = {("reduce_width", "x: None")}  # without samples it is reduced for all of them
CASES = [(verb, way) for verb in VERBS for way in SPOIL if (verb, way) not in VALID]


@pytest.mark.parametrize("verb, way", CASES, ids=[f"{verb}-{way}" for verb, way in CASES])
@hypothesis.settings(max_examples=1, database=None, derandomize=True, deadline=None)
@hypothesis.given(at=st.integers(0, 10_000))
def test_a_bad_argument_gets_one_sentence(verb: str, way: str, at: int):
    with cast.unchecked(), pytest.raises((ValueError, TypeError, ArithmeticError)) as caught:
        VERBS[verb](*SPOIL[way](at))
    said = str(caught.value)
    assert said and "\n" not in said and len(said) < 400, said
    assert "`" in said, f"names no argument: {said}"


def test_there_are_five_hundred():
    assert len(CASES) + len(COMMANDS) >= 500


COMMANDS: dict[str, list[str]] = {
    "no such command": ["explode"],
    "no such model": ["inspect", "nowhere.safetensors"],
    "a model that is text": ["inspect", "text.safetensors"],
    "a table that is text": ["inspect", "--data", "text.csv"],
    "reduce without data": [
        "reduce",
        "nowhere.safetensors",
        "nowhere.csv",
        "--out",
        "x.safetensors",
    ],
    "no such paper": ["reproduce", "nothing"],
    "no such scale": ["reproduce", "riemann", "--scale", "huge"],
    "no such statement": ["verify", "riemann", "Thm 999"],
    "resume without a file": ["verify", "--resume"],
    "a negative seed": ["verify", "--seed", "-1"],
    "no such benchmark": ["bench", "nothing"],
    "no such data": ["data", "fetch", "nothing"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_bad_command_gets_one_sentence(arguments: list[str], tmp_path: Path):
    (tmp_path / "text.safetensors").write_text("no model")
    (tmp_path / "text.csv").write_text("no,table\n1,two\n")
    with contextlib.chdir(tmp_path):
        status, _, error = run(*arguments)
    assert status == 2, error
    assert error.strip() and "Traceback" not in error


def test_a_process_of_its_own_says_the_same(tmp_path: Path):
    arguments = COMMANDS["no such statement"]
    done = subprocess.run(
        [sys.executable, "-m", "neuromanifold", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(nm.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == run(*arguments)
