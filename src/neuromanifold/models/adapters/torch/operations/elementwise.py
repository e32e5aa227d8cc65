"""Operations that act on each entry: arithmetic, comparisons, activations.

At a kink the derivative is PyTorch's: the comparison that chooses the branch is the one its
backward pass makes, and where JAX's derivative differs the slope is given.
"""

from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import (
    Refusal,
    Scalar,
    Table,
    quotient,
    table,
    with_slopes,
)

_absolute = with_slopes(jnp.abs, lambda y, x: jnp.sign(x))
_modulus = with_slopes(jnp.hypot, lambda y, a, b: quotient(a, y), lambda y, a, b: quotient(b, y))
atan2 = with_slopes(
    jnp.arctan2,
    lambda y, a, b: quotient(b, a * a + b * b),
    lambda y, a, b: quotient(-a, a * a + b * b),
)
hypot = with_slopes(jnp.hypot, lambda y, a, b: a / y, lambda y, a, b: b / y)
copysign = with_slopes(
    jnp.copysign, lambda y, a, b: quotient(y, a), lambda y, a, b: jnp.zeros_like(y)
)
xlogy = with_slopes(
    jax.scipy.special.xlogy,
    lambda y, a, b: jnp.where((a == 0) & (b <= 0), 0.0, jnp.log(b)),
    lambda y, a, b: a / b,
)
xlog1py = with_slopes(
    jax.scipy.special.xlog1py,
    lambda y, a, b: jnp.where((a == 0) & (b <= -1), 0.0, jnp.log1p(b)),
    lambda y, a, b: a / (b + 1),
)
_power = with_slopes(
    jnp.power,
    lambda y, a, b: jnp.where(b == 0, 0.0, b * jnp.power(a, jnp.where(b == 0, 1.0, b - 1))),
    lambda y, a, b: jnp.where((a == 0) & (b >= 0), 0.0, y * jnp.log(a)),
)


def absolute(x: Any) -> Any:
    """|x|, with slope zero at zero."""
    return _modulus(x.real, x.imag) if jnp.iscomplexobj(x) else _absolute(x)


def angle(x: Any) -> Any:
    """The argument of a complex number; of real numbers 0 or π."""
    if jnp.iscomplexobj(x):
        return atan2(x.imag, x.real)
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.pi, 0.0))


def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a + αb."""
    return jnp.add(a, b if alpha == 1 else alpha * b)


def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a − αb."""
    return jnp.subtract(a, b if alpha == 1 else alpha * b)


def div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """a / b, rounded towards −∞ (`floor`) or zero (`trunc`) on request."""
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    return jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(jnp.true_divide(a, b))


def power(base: Any, exponent: Any) -> Any:
    """aᵇ; a whole Python exponent stays one, so that it is an integer power."""
    if isinstance(exponent, (int, float)):
        whole = float(exponent).is_integer() and abs(exponent) < 2**31
        return jnp.power(base, int(exponent) if whole else exponent)
    if jnp.issubdtype(jnp.result_type(base, exponent), jnp.integer):
        return jnp.power(base, exponent)
    return _power(base, exponent)


def clamp(x: Any, lower: Any = None, upper: Any = None) -> Any:
    """min(max(x, lower), upper), with slope 1 on the bounds themselves."""
    x = x if lower is None else jnp.where(x < lower, lower, x)
    return x if upper is None else jnp.where(x > upper, upper, x)


def hardtanh(x: Any, lower: Any = -1.0, upper: Any = 1.0) -> Any:
    """x between the bounds, with slope 0 on the bounds themselves."""
    return jnp.where(x <= lower, lower, jnp.where(x >= upper, upper, x))


def hardsigmoid(x: Any) -> Any:
    """The line (x + 3)/6 between 0 and 1."""
    return jnp.where(x <= -3, 0.0, jnp.where(x >= 3, 1.0, x / 6 + 0.5))


def hardswish(x: Any) -> Any:
    """x · hardsigmoid(x)."""
    return jnp.where(x <= -3, 0.0, jnp.where(x >= 3, x, x * (x / 6 + 0.5)))


def threshold(x: Any, bound: Any, value: Any) -> Any:
    """x above the bound, `value` elsewhere."""
    return jnp.where(x > bound, x, value)


def rrelu(x: Any, lower: Scalar = 1 / 8, upper: Scalar = 1 / 3, training: bool = False) -> Any:
    """Leaky ReLU with the mean of its slopes, as in evaluation mode."""
    if training:
        raise Refusal("draws random slopes; call `module.eval()` first")
    return leaky_relu(x, (lower + upper) / 2)


def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """x for x > 0 and `slope`·x elsewhere."""
    return jnp.where(x > 0, x, slope * x)


def prelu(x: Any, weight: Any) -> Any:
    """Leaky ReLU with one slope per channel (axis 1)."""
    shape = (1, -1) + (1,) * (x.ndim - 2) if x.ndim > 1 else (-1,)
    return leaky_relu(x, weight.reshape(shape))


def elu(x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    """scale · (x for x > 0, α(exp(s·x) − 1) elsewhere)."""
    below = jnp.where(x > 0, 0.0, x)
    return jnp.where(x > 0, scale * x, scale * alpha * jnp.expm1(input_scale * below))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """ELU whose slope is continuous for every α."""
    return elu(x, alpha, 1.0, 1.0 / alpha)


def selu(x: Any) -> Any:
    """ELU with the self-normalising constants."""
    return elu(x, 1.6732632423543772, 1.0507009873554805)


def gelu(x: Any, approximate: str = "none") -> Any:
    """x Φ(x), by erf or by tanh."""
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def softplus(x: Any, beta: Any = 1.0, bound: Any = 20.0) -> Any:
    """log(1 + exp(βx))/β, and x itself where βx exceeds the bound, as PyTorch has it."""
    large = beta * x > bound
    return jnp.where(large, x, jax.nn.softplus(beta * jnp.where(large, 0.0, x)) / beta)


def softshrink(x: Any, bound: Any = 0.5) -> Any:
    """x moved towards zero by the bound."""
    return jnp.where(x > bound, x - bound, jnp.where(x < -bound, x + bound, 0.0))


def hardshrink(x: Any, bound: Any = 0.5) -> Any:
    """x, and zero where |x| does not exceed the bound."""
    return jnp.where(jnp.abs(x) <= bound, 0.0, x)


def mish(x: Any) -> Any:
    """x tanh(log(1 + exp x))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def fmax(a: Any, b: Any) -> Any:
    """The larger one, or the one that is a number; of equal ones the first carries the
    derivative.
    """
    return jnp.where((a >= b) | jnp.isnan(b), a, b)


def fmin(a: Any, b: Any) -> Any:
    """The smaller one, or the one that is a number; of equal ones the first carries the
    derivative.
    """
    return jnp.where((a <= b) | jnp.isnan(b), a, b)


def sign(x: Any) -> Any:
    """x/|x|, zero at zero."""
    return quotient(x, jnp.abs(x)) if jnp.iscomplexobj(x) else jnp.sign(x)


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """`value` where the mask is true."""
    return jnp.where(mask, value, x)


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, b elsewhere."""
    return jnp.where(condition, a, b)


def fill(x: Any, value: Any) -> Any:
    """An array like x that holds one value."""
    return jnp.broadcast_to(value, x.shape)


def lerp(a: Any, b: Any, weight: Any) -> Any:
    """a + w(b − a)."""
    return a + weight * (b - a)


def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """x + value·a·b."""
    return x + value * a * b


def addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """x + value·a/b."""
    return x + value * a / b


def glu(x: Any, dim: int = -1) -> Any:
    """The first half times the sigmoid of the second."""
    a, b = jnp.split(x, 2, axis=dim)
    return a * jax.nn.sigmoid(b)


def dropout(x: Any, p: Scalar, train: bool) -> Any:
    """The identity: in training mode the operation is refused."""
    if train and p > 0:
        raise Refusal("draws random numbers (dropout in training mode); call `module.eval()` first")
    return x


def _round(x: Any, decimals: int = 0) -> Any:
    return jnp.round(x, decimals)


ELEMENTWISE: Table = table(
    {
        "add.Tensor add.Scalar": add,
        "sub.Tensor sub.Scalar": sub,
        "rsub.Scalar rsub.Tensor": lambda a, b, alpha=1: sub(b, a, alpha),
        "mul.Tensor mul.Scalar": jnp.multiply,
        "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode true_divide.Tensor": div,
        "floor_divide.default": jnp.floor_divide,
        "remainder.Tensor remainder.Scalar": jnp.remainder,
        "fmod.Tensor fmod.Scalar": jnp.fmod,
        "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar": power,
        "maximum.default max.other": jnp.maximum,
        "minimum.default min.other": jnp.minimum,
        "fmax.default": fmax,
        "fmin.default": fmin,
        "atan2.default arctan2.default": atan2,
        "hypot.default": hypot,
        "copysign.Tensor copysign.Scalar": copysign,
        "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self special_xlogy.default": xlogy,
        "special_xlog1py.default special_xlog1py.other_scalar special_xlog1py.self_scalar": xlog1py,
        "eq.Tensor eq.Scalar": jnp.equal,
        "ne.Tensor ne.Scalar": jnp.not_equal,
        "lt.Tensor lt.Scalar": jnp.less,
        "le.Tensor le.Scalar": jnp.less_equal,
        "gt.Tensor gt.Scalar": jnp.greater,
        "ge.Tensor ge.Scalar": jnp.greater_equal,
        "logical_and.default": jnp.logical_and,
        "logical_or.default": jnp.logical_or,
        "logical_xor.default": jnp.logical_xor,
        "logical_not.default": jnp.logical_not,
        "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar": jnp.bitwise_and,
        "bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar": jnp.bitwise_or,
        "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar": jnp.bitwise_xor,
        "bitwise_not.default": jnp.bitwise_not,
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": where,
        "masked_fill.Scalar masked_fill.Tensor": masked_fill,
        "fill.Scalar fill.Tensor": fill,
        "zero.default": lambda x: jnp.zeros_like(x),
        "lerp.Scalar lerp.Tensor": lerp,
        "addcmul.default": addcmul,
        "addcdiv.default": addcdiv,
        "abs.default absolute.default": absolute,
        "neg.default": jnp.negative,
        "sign.default sgn.default": sign,
        "exp.default": jnp.exp,
        "exp2.default": jnp.exp2,
        "expm1.default": jnp.expm1,
        "log.default": jnp.log,
        "log1p.default": jnp.log1p,
        "log2.default": jnp.log2,
        "log10.default": jnp.log10,
        "sqrt.default": jnp.sqrt,
        "rsqrt.default": jax.lax.rsqrt,
        "reciprocal.default": jnp.reciprocal,
        "square.default": jnp.square,
        "sin.default": jnp.sin,
        "cos.default": jnp.cos,
        "tan.default": jnp.tan,
        "asin.default arcsin.default": jnp.arcsin,
        "acos.default arccos.default": jnp.arccos,
        "atan.default arctan.default": jnp.arctan,
        "sinh.default": jnp.sinh,
        "cosh.default": jnp.cosh,
        "tanh.default": jnp.tanh,
        "asinh.default": jnp.arcsinh,
        "acosh.default": jnp.arccosh,
        "atanh.default": jnp.arctanh,
        "erf.default special_erf.default": jax.lax.erf,
        "erfc.default special_erfc.default": jax.lax.erfc,
        "erfinv.default special_erfinv.default": jax.lax.erf_inv,
        "special_ndtri.default": jax.scipy.special.ndtri,
        "special_log_ndtr.default": jax.scipy.special.log_ndtr,
        "lgamma.default": jax.lax.lgamma,
        "digamma.default special_digamma.default special_psi.default": jax.lax.digamma,
        "polygamma.default special_polygamma.default": jax.scipy.special.polygamma,
        "i0.default special_i0.default": with_slopes(
            jax.scipy.special.i0, lambda y, x: jax.scipy.special.i1(x)
        ),
        "special_i0e.default": jax.scipy.special.i0e,
        "special_i1.default": jax.scipy.special.i1,
        "special_i1e.default": jax.scipy.special.i1e,
        "sinc.default special_sinc.default": jnp.sinc,
        "angle.default": angle,
        "floor.default": jnp.floor,
        "ceil.default": jnp.ceil,
        "trunc.default": jnp.trunc,
        "round.default round.decimals": _round,
        "isnan.default": jnp.isnan,
        "isinf.default": jnp.isinf,
        "isfinite.default": jnp.isfinite,
        "nan_to_num.default": jnp.nan_to_num,
        "clamp.default clamp.Tensor clip.default clip.Tensor": clamp,
        "clamp_min.default clamp_min.Tensor": lambda x, lower: clamp(x, lower),
        "clamp_max.default clamp_max.Tensor": lambda x, upper: clamp(x, None, upper),
        "relu.default": jax.nn.relu,
        "relu6.default": lambda x: hardtanh(x, 0.0, 6.0),
        "hardtanh.default": hardtanh,
        "hardsigmoid.default": hardsigmoid,
        "hardswish.default": hardswish,
        "threshold.default": threshold,
        "leaky_relu.default _prelu_kernel.default": leaky_relu,
        "rrelu.default": rrelu,
        "prelu.default": prelu,
        "elu.default": elu,
        "celu.default": celu,
        "selu.default": selu,
        "gelu.default": gelu,
        "silu.default": jax.nn.silu,
        "mish.default": mish,
        "softplus.default": softplus,
        "softshrink.default": softshrink,
        "hardshrink.default": hardshrink,
        "sigmoid.default special_expit.default": jax.nn.sigmoid,
        "log_sigmoid.default": lambda x: -jax.nn.softplus(-x),
        "glu.default": glu,
        "dropout.default native_dropout.default alpha_dropout.default feature_dropout.default": dropout,
    }
)
