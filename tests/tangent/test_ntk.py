"""The kernel by every route equals J Jᵀ, whatever the block size."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

import cast
import neuromanifold as nm

EPS = 2.0**-52


def dense(member: cast.Member, params, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return member.jacobian(params, x1) @ member.jacobian(params, x2).T


def traced(kernel: np.ndarray, outputs: int) -> np.ndarray:
    return np.einsum("iaja->ij", kernel.reshape(len(kernel) // outputs, outputs, -1, outputs))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=200 * EPS * np.abs(expected).max())


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_kernel_is_the_dense_one(member: cast.Member, rng: np.random.Generator):
    """With the self-check on, which must agree."""
    params, x1, x2 = member.draw(rng), member.inputs(rng, 6), member.inputs(rng, 4)
    rectangle, square = dense(member, params, x1, x2), dense(member, params, x1, x1)
    close(nm.ntk(member.model, params, x1, x2, check=True), rectangle)
    close(nm.ntk(member.model, params, x1), square)
    close(nm.ntk(member.model, params, x1, trace=True, check=True), traced(square, member.outputs))


@pytest.mark.parametrize(
    "member, memory, trace",
    [
        (cast.OUTPUTS, 20_000, False),
        (cast.OUTPUTS, 20_000, True),
        (cast.OUTPUTS, 200_000, False),
        (cast.SHARED, 20_000, False),
        (cast.SHARED, 20_000, True),
        (cast.CONVOLUTION, 200_000, False),
    ],
    ids=str,
)
def test_kernel_does_not_depend_on_the_block_size(
    member: cast.Member, memory: int, trace: bool, rng
):
    """200,000 bytes hold a few dozen rows and 20,000 a few at most, so that every axis is cut."""
    params, x1, x2 = member.draw(rng), member.inputs(rng, 53), member.inputs(rng, 31)
    reduce = (lambda k: traced(k, member.outputs)) if trace else (lambda k: k)
    for other in (None, x2):
        found = nm.ntk(member.model, params, x1, other, trace=trace, memory=memory)
        close(found, reduce(dense(member, params, x1, x1 if other is None else x2)))


@pytest.mark.parametrize(
    "member, dtype",
    [
        (cast.OUTPUTS, "float32"),
        (cast.OUTPUTS, "float64"),
        (cast.SHARED, "float64"),
        (cast.CONVOLUTION, "float32"),
    ],
    ids=str,
)
def test_kernel_is_symmetric_exactly_and_positive_semidefinite_to_rounding(
    member: cast.Member, dtype: str, rng
):
    params, x = (
        jax.tree.map(lambda leaf: leaf.astype(dtype), member.draw(rng)),
        member.inputs(rng, 23).astype(dtype),
    )
    for options in ({"trace": True}, {"memory": 20_000}):
        kernel = nm.ntk(member.model, params, x, **options)
        assert kernel.dtype == dtype
        np.testing.assert_array_equal(kernel, kernel.T)
        values = np.linalg.eigvalsh(kernel.astype(np.float64))
        assert values[0] >= -50 * np.finfo(dtype).eps * values[-1]


def positions(params, x):
    """Two rows of x go through one matrix; five outputs each, and a gram of positions."""
    return jnp.tanh(x.reshape(len(x), 2, -1) @ params["a"]).reshape(len(x), -1) * params["b"]


def leaf_by_leaf(params, x):
    """A leaf that is no factor of a product, so that it is differentiated by itself."""
    return jnp.sin(jnp.outer(x.sum(1), params["a"].ravel()[:10]) + params["b"])


@pytest.mark.parametrize("f", [positions, leaf_by_leaf])
@pytest.mark.parametrize("kind, n", [("all", 103), ("trace", 515), ("diagonal", 515)])
def test_a_symmetric_kernel_in_strips_is_the_dense_one(f, kind: str, n: int, rng):
    """Rows enough for several strips, of which the last overlaps; the same samples as two lists
    take no strips.
    """
    params, x = {"a": rng.normal(size=(3, 5)), "b": rng.normal(size=10)}, rng.normal(size=(n, 6))
    J = np.asarray(nm.jacobian(f, params, x)).reshape(n, 10, -1)
    spec = {"all": "iae,jbe->iajb", "trace": "iae,jae->ij", "diagonal": "iae,jae->ija"}[kind]
    expected = np.einsum(spec, J, J, optimize=True)
    options = {} if kind == "all" else {kind: True}
    found = nm.ntk(f, params, x, **options)
    close(found, expected.reshape(found.shape))
    np.testing.assert_array_equal(found, found.swapaxes(0, 1))
    close(nm.ntk(f, params, x, x, **options), expected.reshape(found.shape))


def many_outputs(params, x):
    """3 parameters and 200 outputs: a product with the Jacobian is cheaper than the Jacobian by
    rows.
    """
    return jnp.sin(x[:, :1] * jnp.arange(200.0) / 50 * params["a"] + params["b"].sum())


def many_parameters(params, x):
    """400 parameters and one output."""
    return (jnp.tanh(x @ params["a"]) * params["b"]).sum(1)


@pytest.mark.parametrize("f, a, b", [(many_outputs, (), (2,)), (many_parameters, (3, 100), (100,))])
def test_functions_of_both_extremes(f, a: tuple, b: tuple, rng: np.random.Generator):
    params, x1, x2 = (
        {"a": rng.normal(size=a), "b": rng.normal(size=b)},
        rng.normal(size=(6, 3)),
        rng.normal(size=(4, 3)),
    )
    outputs = 200 if f is many_outputs else 1
    member = cast.Member("extreme", f, lambda rng: params, (3,), outputs)
    expected = dense(member, params, x1, x2)
    close(nm.ntk(f, params, x1, x2, trace=True), traced(expected, outputs))
    for memory in (None, 40_000):
        close(nm.ntk(f, params, x1, x2, memory=memory), expected)


def untied(params, x):
    """As `cast.SHARED`, with a gradient through one of its two uses only."""
    fixed = jax.lax.stop_gradient(params["weight"])
    return jnp.tanh(params["sharpness"] * (x @ params["weight"].T)) @ fixed + params["offset"]


def test_the_dense_reference_tells_kernels_apart(rng: np.random.Generator):
    params, x = cast.SHARED.draw(rng), cast.SHARED.inputs(rng, 6)
    with pytest.raises(AssertionError):
        close(nm.ntk(untied, params, x), dense(cast.SHARED, params, x, x))
    params = cast.NTK.draw(rng)
    with pytest.raises(AssertionError):
        close(nm.ntk(nm.MLP((3, 5, 4, 2)), params, x), dense(cast.NTK, params, x, x))


def batch_norm(params, x):
    z = x @ params["weight"]
    return (z - z.mean(0)) / (z.std(0) + 1e-3) * params["gain"]


def batch_mean(params, x):
    return (
        jnp.tanh(x @ params["weight"])
        + 1e-2 * jnp.tanh(x @ params["weight"]).mean(0) * params["gain"]
    )


def previous_row(params, x):
    return jnp.tanh(x @ params["weight"]) * params["gain"] + jnp.roll(
        x @ params["weight"], 1, axis=0
    )


def last_into_first(params, x):
    z = jnp.tanh(x @ params["weight"]) * params["gain"]
    return z.at[0].add(z[-1])


@pytest.mark.parametrize("mixing", [batch_norm, batch_mean, previous_row, last_into_first])
def test_the_self_check_refuses_rows_that_depend_on_each_other(mixing, rng: np.random.Generator):
    params, x = (
        {"weight": rng.normal(size=(3, 2)), "gain": rng.normal(size=2)},
        rng.normal(size=(6, 3)),
    )
    for options in ({}, {"trace": True}, {"x2": x[:4]}):
        with pytest.raises(
            ArithmeticError, match=r"`f` mixes its rows: .*; pass a model in evaluation mode"
        ):
            nm.ntk(mixing, params, x, check=True, **options)


@pytest.mark.parametrize("member", cast.ALL, ids=str)
def test_the_operator_multiplies_by_the_dense_kernel(member: cast.Member, rng: np.random.Generator):
    params, x = member.draw(rng), member.inputs(rng, 6)
    kernel = dense(member, params, x, x)
    operator = nm.ntk_operator(member.model, params, x)
    assert isinstance(operator, lineax.AbstractLinearOperator)
    assert operator.in_size() == operator.out_size() == len(kernel)
    for vector in rng.normal(size=(3, len(kernel))):
        product = np.asarray(operator.mv(vector))
        assert product.dtype == np.float64
        np.testing.assert_allclose(
            product, kernel @ vector, rtol=0, atol=1e3 * EPS * np.abs(kernel).max()
        )


def test_the_operator_is_one_of_lineax(rng: np.random.Generator, x64: bool):
    params, x = cast.TANH.draw(rng), cast.TANH.inputs(rng, 6)
    kernel = dense(cast.TANH, params, x, x)
    operator = nm.ntk_operator(cast.TANH.model, params, x)
    close(np.asarray(operator.as_matrix()), kernel)
    assert lineax.is_symmetric(operator)
    assert lineax.is_positive_semidefinite(operator)
    vector = rng.normal(size=len(kernel))
    with jax.enable_x64(True):
        np.testing.assert_allclose(operator.T.mv(vector), kernel @ vector, rtol=1e-10)
        ridge = operator + lineax.IdentityLinearOperator(operator.in_structure())
        positive = lineax.TaggedLinearOperator(ridge, lineax.positive_semidefinite_tag)
        found = lineax.linear_solve(
            positive, jnp.asarray(vector), lineax.CG(rtol=1e-12, atol=1e-12)
        ).value
    np.testing.assert_allclose(
        (kernel + np.eye(len(kernel))) @ np.asarray(found), vector, rtol=0, atol=1e-9
    )


def test_lower_precision_is_only_on_request(rng: np.random.Generator):
    params, x = cast.RELU.draw(rng), cast.RELU.inputs(rng, 6)
    close(nm.ntk(cast.RELU.model, params, x, precision="highest"), dense(cast.RELU, params, x, x))
    with pytest.raises(ValueError, match="`precision` is 'sloppy'"):
        nm.ntk(cast.RELU.model, params, x, precision="sloppy")
