"""Which float comes out, under which flag, inside and outside of transformations; and that
nothing compiles twice.
"""

import contextlib
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cast
import neuromanifold as nm
from neuromanifold.models import arguments
from neuromanifold.numerics.compiling import release_programs


def numbers(params, x: np.ndarray, *, member: cast.Member = cast.OUTPUTS) -> dict[str, np.ndarray]:
    """Everything numerical that the tangent room says about one network."""
    f, y = member.model, np.ones((len(x), member.outputs), x.dtype)
    return {
        "jacobian": nm.jacobian(f, params, x),
        "ntk": nm.ntk(f, params, x),
        "rectangle": nm.ntk(f, params, x, x[:4]),
        "trace": nm.ntk(f, params, x, trace=True),
        "product": nm.ntk_operator(f, params, x).mv(np.ones(len(x) * member.outputs, x.dtype)),
        "alignment": nm.alignment(f, params, x, y, loss=nm.losses.mse),
        "spectrum": nm.functional_dimension(f, params, x).spectrum,
        "rank": nm.functional_dimension(f, params, x).value,
    }


def converted(tree, dtype):
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(dtype), tree)


@pytest.mark.parametrize(
    "dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64], ids=lambda t: t.__name__
)
def test_the_widest_dtype_comes_out(dtype, rng: np.random.Generator, x64: bool):
    """At least float32; 64-bit NumPy parameters keep their precision although the flag is off."""
    member = cast.OUTPUTS
    params, x = converted(member.draw(rng), dtype), member.inputs(rng, 6).astype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    found = numbers(params, x)
    jacobian = member.jacobian(params, x.astype(np.float64))
    for name, expected in [("jacobian", jacobian), ("ntk", jacobian @ jacobian.T)]:
        assert found[name].dtype == wide
        np.testing.assert_allclose(
            found[name], expected, rtol=0, atol=100 * np.finfo(wide).eps * np.abs(expected).max()
        )
    assert found["product"].dtype == found["trace"].dtype == wide
    assert found["spectrum"].dtype == np.float64


@pytest.mark.parametrize("narrow", ["params", "x"])
def test_one_wide_argument_makes_everything_wide(narrow: str, rng: np.random.Generator):
    member = cast.SHARED
    params, x = member.draw(rng), member.inputs(rng, 6)
    params, x = (
        (converted(params, np.float32), x) if narrow == "params" else (params, x.astype(np.float32))
    )
    found, jacobian = (
        nm.ntk(member.model, params, x),
        member.jacobian(converted(params, float), x.astype(float)),
    )
    assert found.dtype == np.float64
    np.testing.assert_allclose(
        found, jacobian @ jacobian.T, rtol=0, atol=1e-13 * np.abs(found).max()
    )


def test_results_of_eager_calls_do_not_decay(rng: np.random.Generator):
    """A float64 JAX array would become float32 at the next operation with the flag off; NumPy
    arrays stay.
    """
    params, x = cast.OUTPUTS.draw(rng), cast.OUTPUTS.inputs(rng, 6)
    for name, value in numbers(params, x).items():
        if name != "product":
            assert isinstance(value, np.ndarray | float | np.generic), name
    assert (nm.ntk(cast.OUTPUTS.model, params, x) + 1).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transformed_values_are_the_eager_ones(dtype, rng: np.random.Generator):
    params = [converted(cast.OUTPUTS.draw(rng), dtype) for _ in range(3)]
    x = cast.OUTPUTS.inputs(rng, 6).astype(dtype)
    eager = [numbers(p, x) for p in params]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    with jax.enable_x64(dtype == np.float64):
        jitted = jax.jit(lambda p: numbers(p, x))(params[0])
        mapped = jax.jit(jax.vmap(lambda p: numbers(p, x)))(stacked)
    for name in eager[0]:
        expected = np.stack([values[name] for values in eager])
        atol = 1e3 * np.finfo(dtype).eps * np.abs(expected).max()
        assert np.asarray(mapped[name]).dtype == np.asarray(jitted[name]).dtype
        np.testing.assert_allclose(
            np.asarray(jitted[name]), expected[0], rtol=0, atol=atol, err_msg=name
        )
        np.testing.assert_allclose(
            np.asarray(mapped[name]), expected, rtol=0, atol=atol, err_msg=name
        )
    assert np.asarray(mapped["spectrum"]).dtype == np.float64
    assert np.asarray(mapped["jacobian"]).dtype == dtype


TRANSFORMATIONS = {
    "jit": lambda f: jax.jit(f)(1.0),
    "vmap": lambda f: jax.vmap(f)(jnp.ones(2)),
    "grad": lambda f: jax.grad(f)(1.0),
}


@pytest.mark.parametrize("transform", TRANSFORMATIONS.values(), ids=TRANSFORMATIONS)
@pytest.mark.parametrize("traced", ["params", "x"])
def test_exact_arithmetic_refuses_tracers_in_one_sentence(
    transform, traced: str, rng: np.random.Generator
):
    params, x = (
        converted(cast.OUTPUTS.draw(rng), np.float32),
        cast.OUTPUTS.inputs(rng, 6).astype(np.float32),
    )

    def value(t):
        p, data = (
            (jax.tree.map(lambda leaf: leaf * t, params), x)
            if traced == "params"
            else (params, x * t)
        )
        return nm.functional_dimension(cast.OUTPUTS.model, p, data, exact=True).value

    sentence = r"^`exact=True` needs concrete values and runs on the host; call it outside [^.]*\."
    with pytest.raises(TypeError, match=sentence):
        transform(value)


@contextlib.contextmanager
def compilations():
    """The functions that JAX compiles inside the block, as its own log reports them."""
    names: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: names.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles(True):
            yield names
    finally:
        logger.removeHandler(handler)
        names[:] = [name for name in names if name.startswith("Compiling ")]


def everything(member: cast.Member, rng: np.random.Generator) -> None:
    params, x, y = member.draw(rng), member.inputs(rng, 6), rng.normal(size=(6, member.outputs))
    nm.jacobian(member.model, params, x)
    nm.ntk(member.model, params, x, check=True)
    nm.ntk(member.model, params, x, x[:4], trace=True, memory=20_000)
    nm.ntk_operator(member.model, params, x).mv(y.ravel())
    nm.spectrum(member.model, params, x)
    nm.spectrum(member.model, params, x, k=2)
    nm.alignment(member.model, params, x, y, loss=nm.losses.mse)
    nm.kernel_alignment(member.model, params, x, y)
    nm.functional_dimension(member.model, params, x)
    if member is cast.OUTPUTS:
        nm.tangent.output_hessian_norm(member.model, params, x)
        nm.sharpness(member.model, params, x, y)
        nm.functional_dimension(member.model, params, x, exact=True)
        nm.activation_patterns(member.model, params, x)
        nm.sampled_regions(member.model, params, x)
        nm.fixed_neurons(member.model, params, x)


@pytest.mark.parametrize("member", [cast.OUTPUTS, cast.SHARED], ids=str)
def test_a_second_call_with_the_same_shapes_compiles_nothing(
    member: cast.Member, rng: np.random.Generator
):
    everything(member, rng)
    with compilations() as second:
        everything(member, rng)
    assert second == []


def test_programs_of_functions_long_gone_are_released(rng: np.random.Generator):
    """What was compiled for a function goes with the 64th new one after it, and not before."""
    member = cast.OUTPUTS
    params, x = member.draw(rng), member.inputs(rng, 6)

    def call() -> list[str]:
        with compilations() as found:
            nm.ntk(member.model, params, x)
        return found

    call()
    release_programs()
    assert any("kernel" in name or "ntk" in name for name in call())
    assert call() == []
    met = [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguments, "release_programs", lambda: met.append(1))
        for _ in range(128):
            arguments.check_model(lambda params, x: x)
    assert sum(met) == 2


def test_the_count_of_compilations_sees_a_compilation():
    with compilations() as found:
        jax.jit(lambda z: z * 3 + 1)(jnp.ones(7))
    assert found
