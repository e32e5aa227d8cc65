"""One walk, many arithmetics: values, derivatives and decisions against JAX in float64 and
against fractions.
"""

from typing import Any

import flint
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graph.agreement import check_arithmetics
from graph.architectures import ARCHITECTURES, EXACT, Architecture
from neuromanifold.graph import NoExactAnswer, programs, trace
from neuromanifold.graph.balls import Balls
from neuromanifold.graph.bounded import Bounded
from neuromanifold.graph.numbers import Fractions
from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.graph.walk import walk
from neuromanifold.regions.decisions import decide
from neuromanifold.regions.problem import Problem


@pytest.mark.parametrize("net", EXACT, ids=str)
def test_every_arithmetic_has_the_jacobian(net: Architecture, rng: np.random.Generator):
    check_arithmetics(net.f, net.draw(rng), net.inputs(rng, 2))


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_run_the_way_they_say(reverse: bool, rng: np.random.Generator):
    def f(params: Any, x: Any) -> Any:
        return jax.lax.cumsum(x * params, axis=1, reverse=reverse)

    check_arithmetics(f, rng.integers(-4, 5, 3) / 4, rng.integers(-4, 5, (2, 3)) / 4)


@pytest.mark.parametrize("net", EXACT, ids=str)
def test_values_and_gates_are_those_of_jax(net: Architecture, rng: np.random.Generator):
    params, x = net.draw(rng), net.inputs(rng, 3)
    problem = Problem.of(net.f, params, x)
    with jax.enable_x64(True):
        expected = np.asarray(net.f(jax.tree.map(jnp.asarray, params), jnp.asarray(x))).reshape(
            3, -1
        )
    values = problem.values(Bounded())
    assert (
        np.abs(values.middle - expected) <= values.radius + 1e-13 * np.abs(expected).max()
    ).all()


@pytest.mark.parametrize("net", [a for a in EXACT if a.name != "linear attention"], ids=str)
def test_decisions_agree_in_floats_balls_and_rationals(
    net: Architecture, rng: np.random.Generator, draws, tally
):
    """Coarse parameters, so that ties are frequent; the float64 pass, ball arithmetic and
    fractions must agree on all of them.
    """
    total, tied = draws(32), 0
    for _ in range(total):
        params, x = net.coarse(rng), net.inputs(rng, 3)
        x = x if net.tokens else rng.integers(-2, 3, x.shape) / 2
        graph = trace(net.f, params, x)
        fast, slow = (decide(graph, params, x, balls_only=balls) for balls in (False, True))
        A = Fractions()
        inputs = [*(A.lift(a) for a in jax.tree.leaves(params)), x if net.tokens else A.lift(x)]
        record: list[Any] = []
        gates = walk(programs.decisions(graph, 3), A, inputs, record)
        for k, gate in enumerate(gates):
            np.testing.assert_array_equal(fast.gates[k], gate)
            np.testing.assert_array_equal(slow.gates[k], gate)
            np.testing.assert_array_equal(fast.ties[k], slow.ties[k])
        tied += any(t.any() for t in fast.ties)
    if graph.units:
        tally(tied, of=total, what="networks with a tie")


@pytest.mark.parametrize("net", [a for a in ARCHITECTURES if a.smooth], ids=str)
def test_what_has_no_exact_answer_is_refused_by_name_and_line(
    net: Architecture, rng: np.random.Generator
):
    with pytest.raises(NoExactAnswer, match=r"`f` uses (exp|tanh|rsqrt) \(.*architectures\.py:\d+"):
        Problem.of(net.f, net.draw(rng), net.inputs(rng, 2))


def test_a_jump_is_refused_where_it_matters(rng: np.random.Generator):
    params, x = {"w": rng.normal(size=(2, 2))}, rng.normal(size=(3, 2))
    with pytest.raises(NoExactAnswer, match=r"uses floor .* which jumps; pass `exact=False`"):
        Problem.of(lambda p, x: jnp.floor(x @ p["w"]), params, x)
    harmless = lambda p, x: x @ p["w"] * jnp.floor(2.5)  # noqa: E731
    assert Problem.of(harmless, params, x).shape == (6, 4)


def test_an_underflow_is_counted():
    """x⁸ at 1e-60 is zero in float64 and positive in truth."""
    f = lambda p, x: jax.nn.relu(p["w"] * x**8)  # noqa: E731
    params, x = {"w": np.ones(1)}, np.array([[1e-60], [-1e-60], [0.0]])
    found = decide(trace(f, params, x), params, x)
    assert found.gates[0].ravel().tolist() == [True, True, False]
    assert found.escalated == 2


def test_constants_alone_are_rounded_once_and_listed(rng: np.random.Generator):
    net = next(a for a in EXACT if a.name == "normalised")
    graph = trace(net.f, net.draw(rng), net.inputs(rng, 2))
    assert "rsqrt of constants" in graph.program.rounded
    plain = next(a for a in EXACT if a.name == "residual")
    assert trace(plain.f, plain.draw(rng), plain.inputs(rng, 2)).program.rounded == ()
    with flint.ctx.workprec(64):
        assert Balls().lift(np.array([0.1])).balls[0].mid() == flint.arb(0.1)


def test_a_table_shows_what_every_operation_allows(rng: np.random.Generator):
    net = next(a for a in EXACT if a.name == "max-pooling")
    graph = trace(net.f, net.draw(rng), net.inputs(rng, 2))
    text = str(graph)
    assert (
        "conv_general_dilated" in text
        and "reduce_window_max" in text
        and "piecewise linear" in text
    )
    assert [u.operation for u in graph.units] == ["max", "reduce_window_max"]
    assert [u.name for u in graph.units] == ["b", "b"]
    assert (graph.piecewise_linear, graph.polynomial, graph.analytic) == (True, False, False)
    attention = next(a for a in EXACT if a.name == "linear attention")
    graph = trace(attention.f, attention.draw(rng), attention.inputs(rng, 2))
    assert (graph.piecewise_linear, graph.polynomial, graph.analytic) == (False, True, True)


def test_loops_and_branches_on_data_are_refused(rng: np.random.Generator):
    def loop(p: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda h: (h**2).sum() < 10, lambda h: 2 * h + 1, x * p["w"])

    with pytest.raises(ValueError, match="a loop whose end depends on data"):
        trace(loop, {"w": np.ones(2)}, np.ones((1, 2)))

    def fixed(p, x):
        end = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * p["w"]), (0, x))
        return end[1]

    assert trace(fixed, {"w": np.ones(2)}, np.ones((1, 2))).polynomial
    chosen = lambda p, x: jax.lax.cond(x.ndim == 2, lambda h: h * p["w"], jnp.sin, x)  # noqa: E731
    assert trace(chosen, {"w": np.ones(2)}, np.ones((1, 2))).polynomial


def test_residues_divide_and_refuse_zero():
    A = ResidueArithmetic(7)
    assert A.divide(A.lift(np.array([1, 6])), A.lift(np.array([3, 4]))).values.tolist() == [5, 5]
    with pytest.raises(ZeroDivisionError, match="zero modulo the prime"):
        A.divide(A.lift(np.array([1])), A.lift(np.array([7])))


def test_an_operation_with_several_results_and_no_rule_has_no_exact_answer(rng):
    x, params = rng.standard_normal((3, 2)), {"a": rng.standard_normal((4, 2))}

    def squares(params, x):
        z = (x @ params["a"].T).reshape(len(x), 2, 2)
        return z @ z.mT

    def closed(f):
        return Problem.of(f, params, x, require_exact=False).zero_columns

    assert not closed(lambda params, x: squares(params, x).reshape(len(x), 4)).any()
    with pytest.raises(NoExactAnswer, match="supports have no rule for `eigh`"):
        closed(lambda params, x: jnp.linalg.eigh(squares(params, x))[0])
