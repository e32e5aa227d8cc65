"""`Activation`: a scalar function together with the properties the theory asks about."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import arithmetic

_PROPERTIES = (
    "parity",
    "degree",
    "scalars",
    "at_zero",
    "slope_at_zero",
    "analytic",
    "polynomial",
    "slopes",
)


@dataclass(frozen=True, init=False)
class Activation:
    """A scalar function σ and what is known about it.

    Properties that are not declared are determined numerically, and `measured` names them.

    - `parity`: `"odd"`, `"even"` or `None`.
    - `degree`, `scalars`: σ(cz) = cᵈσ(z) for every c in `scalars` (`"positive"` or `"real"`);
      `degree` is `None` if there is none.
    - `at_zero`, `slope_at_zero`: σ(0) and σ'(0); at a kink, the slope from the left.
    - `analytic`: whether σ is real analytic.
    - `polynomial`: the coefficients, constant first, or `None`.
    - `slopes`: (s₋, s₊) when σ(z) = s₋z for z ≤ 0 and s₊z for z > 0, else `None`.

    >>> import jax.numpy as jnp
    >>> swish = Activation(lambda z: z / (1 + jnp.exp(-z)), name="swish")
    >>> swish.parity, swish.at_zero, round(swish.slope_at_zero, 12), "parity" in swish.measured
    (None, 0.0, 0.5, True)
    """

    fn: Callable[[Any], Any]
    name: str
    parity: str | None
    degree: float | None
    scalars: str | None
    at_zero: float
    slope_at_zero: float
    analytic: bool
    polynomial: tuple[float, ...] | None
    slopes: tuple[float, float] | None
    measured: frozenset[str] = field(compare=False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Activations of the library are pickled by their name, since their functions cannot be."""
        try:
            known = activation_named(self.name) == self
        except ValueError:
            known = False
        return (activation_named, (self.name,)) if known else super().__reduce_ex__(protocol)

    def __init__(self, fn: Callable[[Any], Any], *, name: str | None = None, **declared: Any):
        unknown = set(declared) - set(_PROPERTIES)
        if unknown:
            raise TypeError(
                f"`{min(unknown)}` is no property of an activation; declare some of "
                f"{', '.join(_PROPERTIES)}."
            )
        if declared.get("parity") not in ("odd", "even", None):
            raise ValueError(f"`parity` is {declared['parity']!r}; pass 'odd', 'even' or None.")
        declared = {**_imply(declared), **declared}
        missing = frozenset(_PROPERTIES) - set(declared)
        properties = {**(_measure(fn) if missing else {}), **declared}
        for key in _PROPERTIES:
            object.__setattr__(self, key, properties[key])
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "name", name or getattr(fn, "__name__", "custom"))
        object.__setattr__(self, "measured", missing)

    def __call__(self, z: Any) -> Any:
        return self.fn(z)

    def derivative(self, z: Any) -> Any:
        """Return σ'(z), entrywise, by automatic differentiation."""
        return jax.jvp(self.fn, (z,), (jnp.ones_like(z),))[1]

    def __repr__(self) -> str:
        return f"Activation({self.name!r})"

    def __str__(self) -> str:
        return self.name


def _imply(declared: dict[str, Any]) -> dict[str, Any]:
    """What a declared polynomial says about slopes, and declared slopes about the polynomial."""
    if declared.get("polynomial") is not None:
        constant, *rest = (*declared["polynomial"], 0.0)
        linear = constant == 0 and not any(rest[1:])
        return {"slopes": (rest[0], rest[0]) if linear else None}
    if declared.get("slopes") is not None:
        left, right = declared["slopes"]
        return {"polynomial": (0.0, right) if left == right else None}
    return {}


def _measure(fn: Callable[[Any], Any]) -> dict[str, Any]:
    """Properties of σ, read off its values at a few dozen points in float64."""
    z = np.linspace(0.1, 2.3, 23)
    with arithmetic():
        try:
            values = {c: np.asarray(fn(jnp.asarray(c * z))) for c in (1.0, -1.0, 2.0, -2.0, 3.0)}
            zero = jnp.zeros((), jnp.float64)
            at_zero, slope = (float(v) for v in jax.jvp(fn, (zero,), (jnp.ones_like(zero),)))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`fn` is no entrywise JAX function of one array ({error}); write it with "
                "jax.numpy."
            ) from None
    if values[1.0].shape != z.shape:
        raise TypeError(
            f"`fn` maps shape {z.shape} to {values[1.0].shape}; an activation acts entrywise."
        )
    degree, scalars = _homogeneity(values)
    return {
        "parity": _parity(values),
        "degree": degree,
        "scalars": scalars,
        "at_zero": at_zero,
        "slope_at_zero": slope,
        "analytic": not _has_kink(fn),
        "polynomial": _polynomial(values, z),
        "slopes": _slopes(values, z),
    }


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-12, atol=1e-14))


def _parity(values: dict[float, np.ndarray]) -> str | None:
    if _agree(values[-1.0], -values[1.0]):
        return "odd"
    return "even" if _agree(values[-1.0], values[1.0]) else None


def _homogeneity(values: dict[float, np.ndarray]) -> tuple[float | None, str | None]:
    reference = values[1.0] if np.any(values[1.0]) else values[-1.0]
    double = values[2.0] if np.any(values[1.0]) else values[-2.0]
    if not np.all(reference * double > 0):
        return None, None
    degree = float(np.round(np.log2(double / reference).mean(), 10))
    if not (
        _agree(values[2.0], 2**degree * values[1.0])
        and _agree(values[-2.0], 2**degree * values[-1.0])
    ):
        return None, None
    if not _agree(values[3.0], 3**degree * values[1.0]):
        return None, None
    real = degree.is_integer() and _agree(values[-1.0], (-1) ** int(degree) * values[1.0])
    return degree, "real" if real else "positive"


def _polynomial(values: dict[float, np.ndarray], z: np.ndarray) -> tuple[float, ...] | None:
    points, heights = np.concatenate([z, -z]), np.concatenate([values[1.0], values[-1.0]])
    for degree in range(7):
        fit = np.polynomial.Polynomial.fit(points, heights, degree)
        if np.abs(fit(points) - heights).max() <= 1e-12 * max(1.0, float(np.abs(heights).max())):
            return tuple(float(c) for c in np.round(fit.convert().coef, 10))
    return None


def _slopes(values: dict[float, np.ndarray], z: np.ndarray) -> tuple[float, float] | None:
    right, left = float(values[1.0][0] / z[0]), float(-values[-1.0][0] / z[0])
    linear = _agree(values[1.0], right * z) and _agree(values[-1.0], -left * z)
    return (left, right) if linear else None


def _has_kink(fn: Callable[[Any], Any]) -> bool:
    """Whether σ' jumps on [-3, 3]: the largest step of a continuous slope shrinks with the grid,
    a jump stays.
    """
    coarse, fine = (_largest_slope_step(fn, points) for points in (1001, 16001))
    return fine > coarse / 4 and fine > 1e-9


def _largest_slope_step(fn: Callable[[Any], Any], points: int) -> float:
    with arithmetic():
        z = jnp.linspace(-3.0, 3.0, points, dtype=jnp.float64)
        slope = np.asarray(jax.jvp(fn, (z,), (jnp.ones_like(z),))[1])
    return float(np.abs(np.diff(slope)).max())


def _piecewise_linear(name: str, left: float, right: float) -> Activation:
    def fn(z: Any):
        return jnp.where(z > 0, right * z, left * z)

    linear = left == right
    return Activation(
        fn,
        name=name,
        parity="odd" if linear else "even" if left == -right else None,
        degree=1.0,
        scalars="real" if linear else "positive",
        at_zero=0.0,
        slope_at_zero=left,
        analytic=linear,
        polynomial=(0.0, right) if linear else None,
        slopes=(left, right),
    )


def leaky_relu(alpha: float = 0.01) -> Activation:
    """Return σ(z) = z for z > 0 and αz otherwise, α = `alpha`."""
    if not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise ValueError(f"`alpha` is {alpha!r}; pass a finite number.")
    return _leaky_relu(float(alpha))


@functools.lru_cache
def _leaky_relu(alpha: float) -> Activation:
    return _piecewise_linear(f"leaky_relu({alpha!r})", alpha, 1.0)


# Beyond it z^d is 0 or infinite in float64 for most z, and its coefficients would fill the memory.
_LARGEST_DEGREE = 1000


def power(degree: int) -> Activation:
    """Return σ(z) = z^d, d = `degree`, homogeneous on all real scalars: (cz)^d = c^d z^d."""
    if (
        not isinstance(degree, (int, float))
        or not math.isfinite(degree)
        or degree != int(degree)
        or degree < 1
    ):
        raise ValueError(f"`degree` is {degree!r}; pass a positive integer.")
    if degree > _LARGEST_DEGREE:
        raise ValueError(
            f"`degree` is {degree!r}; pass a positive integer up to {_LARGEST_DEGREE}."
        )
    return _power(int(degree))


@functools.lru_cache
def _power(degree: int) -> Activation:
    return Activation(
        lambda z: z**degree,
        name=f"power({degree})",
        parity="odd" if degree % 2 else "even",
        degree=float(degree),
        scalars="real",
        at_zero=0.0,
        slope_at_zero=1.0 if degree == 1 else 0.0,
        analytic=True,
        polynomial=(0.0,) * degree + (1.0,),
        slopes=(1.0, 1.0) if degree == 1 else None,
    )


def _smooth(
    fn: Callable[[Any], Any], name: str, parity: str | None, at_zero: float, slope_at_zero: float
) -> Activation:
    return Activation(
        fn,
        name=name,
        parity=parity,
        degree=None,
        scalars=None,
        at_zero=at_zero,
        slope_at_zero=slope_at_zero,
        analytic=True,
        polynomial=None,
        slopes=None,
    )


def _exact_gelu(z: Any):
    return jax.nn.gelu(z, approximate=False)


relu = _piecewise_linear("relu", 0.0, 1.0)
identity = Activation(
    lambda z: z,
    name="identity",
    parity="odd",
    degree=1.0,
    scalars="real",
    at_zero=0.0,
    slope_at_zero=1.0,
    analytic=True,
    polynomial=(0.0, 1.0),
    slopes=(1.0, 1.0),
)

BUILT_IN: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        relu,
        identity,
        _piecewise_linear("abs", -1.0, 1.0),
        _smooth(jnp.tanh, "tanh", "odd", 0.0, 1.0),
        _smooth(jax.nn.sigmoid, "sigmoid", None, 0.5, 0.25),
        _smooth(jax.nn.softplus, "softplus", None, math.log(2.0), 0.5),
        _smooth(_exact_gelu, "gelu", None, 0.0, 0.5),
        _smooth(jax.nn.silu, "silu", None, 0.0, 0.5),
        _smooth(jax.lax.erf, "erf", "odd", 0.0, 2.0 / math.sqrt(math.pi)),
        _smooth(jnp.sin, "sin", "odd", 0.0, 1.0),
        _smooth(jnp.cos, "cos", "even", 1.0, 0.0),
        _smooth(jnp.exp, "exp", None, 1.0, 1.0),
    )
}
_FAMILIES: dict[str, tuple[Callable[..., Activation], type]] = {
    "leaky_relu": (leaky_relu, float),
    "power": (power, int),
}


_SPELLINGS = {"leakyrelu": "leaky_relu", "swish": "silu"}


def activation_named(name: str) -> Activation:
    """The built-in activation of that name, in any case; `"leaky_relu(0.2)"` and `"power(2)"` name
    members of families.

    >>> activation_named("leaky_relu(0.25)").slopes
    (0.25, 1.0)
    """
    spelled = name.strip().lower()
    for spelling, usual in _SPELLINGS.items():
        spelled = (
            usual + spelled.removeprefix(spelling) if spelled.startswith(spelling) else spelled
        )
    if spelled in BUILT_IN:
        return BUILT_IN[spelled]
    family, _, argument = spelled.partition("(")
    try:
        if family in _FAMILIES:
            make, parse = _FAMILIES[family]
            value = argument.removesuffix(")")
            return make(parse(value)) if value else make()
    except (TypeError, ValueError):
        pass
    known = ", ".join(sorted([*BUILT_IN, "leaky_relu(α)", "power(d)"]))
    raise ValueError(
        f"`activation` is {name!r}, which is not built in; use one of {known}, or "
        "nm.Activation(fn)."
    )


@dataclass(frozen=True, init=False)
class Mixed:
    """One layer whose neurons have different activations, in the order given.

    >>> Mixed(relu=3, identity=2).width
    5
    >>> Mixed((leaky_relu(0.1), 1), identity=2)
    Mixed(leaky_relu(0.1)=1, identity=2)
    """

    parts: tuple[tuple[Activation, int], ...]

    def __init__(self, *parts: tuple[Activation, int], **counts: int):
        named = tuple((activation_named(name), count) for name, count in counts.items())
        for activation, count in (*parts, *named):
            if count != int(count) or count < 0:
                raise ValueError(
                    f"`{activation}` is given {count} neurons; pass a whole number, zero or more."
                )
        object.__setattr__(self, "parts", tuple((a, int(c)) for a, c in (*parts, *named) if c > 0))
        if not self.parts:
            raise ValueError(
                "`Mixed` is given no neurons; name activations with their counts, as in "
                "Mixed(relu=3, identity=2)."
            )

    @property
    def width(self) -> int:
        """The number of neurons of the layer."""
        return sum(count for _, count in self.parts)

    def __repr__(self) -> str:
        return f"Mixed({', '.join(f'{activation}={count}' for activation, count in self.parts)})"


def per_neuron(entry: Activation | Mixed, width: int) -> tuple[tuple[Activation, slice], ...]:
    """The runs of equal activation in a layer, as (activation, neurons)."""
    if isinstance(entry, Activation):
        return ((entry, slice(0, width)),)
    stops = np.cumsum([count for _, count in entry.parts])
    return tuple(
        (a, slice(int(stop) - c, int(stop)))
        for (a, c), stop in zip(entry.parts, stops, strict=True)
    )


def apply_activation(entry: Activation | Mixed, z: Any) -> Any:
    """σ(z) for a layer's pre-activations, neurons on the last axis."""
    runs = per_neuron(entry, z.shape[-1])
    if len(runs) == 1:
        return runs[0][0](z)
    return jnp.concatenate([activation(z[..., neurons]) for activation, neurons in runs], axis=-1)


def activation_slope(entry: Activation | Mixed, z: Any) -> Any:
    """σ'(z) for a layer's pre-activations, neurons on the last axis."""
    return jax.jvp(lambda z: apply_activation(entry, z), (z,), (jnp.ones_like(z),))[1]
