"""Programs drawn at random from the table of operations: every arithmetic against JAX and
against fractions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graph.agreement import check_arithmetics
from neuromanifold.graph import NoExactAnswer, trace

Step = Callable[[Any, Any], Any]
NHWC = ("NHWC", "HWIO", "NHWC")


def _convolution(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[Step, dict[str, np.ndarray]] | None:
    """Any strides, dilations of input and kernel, padding and groups."""
    channels = shape[-1]
    groups = channels if channels > 1 and rng.random() < 0.4 else 1
    size, out = rng.integers(1, 4, 2), groups * int(rng.integers(1, 3))
    options = {
        "window_strides": tuple(int(v) for v in rng.integers(1, 3, 2)),
        "padding": [tuple(int(v) for v in rng.integers(0, 3, 2)) for _ in range(2)],
        "lhs_dilation": tuple(int(v) for v in rng.integers(1, 3, 2)),
        "rhs_dilation": tuple(int(v) for v in rng.integers(1, 3, 2)),
        "feature_group_count": groups,
    }
    params = {
        "kernel": _coarse(rng, (*size, channels // groups, out)),
        "bias": _coarse(rng, (out,)),
    }

    def step(p: Any, h: Any) -> Any:
        return (
            jax.lax.conv_general_dilated(h, p["kernel"], dimension_numbers=NHWC, **options)
            + p["bias"]
        )

    return step, params


def _pooling(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[Step, dict[str, np.ndarray]] | None:
    """Largest, smallest or mean entries of overlapping windows, padded."""
    window = tuple(int(min(s, v)) for s, v in zip(shape[:2], rng.integers(1, 4, 2), strict=True))
    strides = tuple(int(v) for v in rng.integers(1, 3, 2))
    padding = [(int(rng.integers(0, k)), int(rng.integers(0, k))) for k in window]
    start, reduce = [(-jnp.inf, jax.lax.max), (jnp.inf, jax.lax.min), (0.0, jax.lax.add)][
        int(rng.integers(3))
    ]
    geometry = (1, *window, 1), (1, *strides, 1), [(0, 0), *padding, (0, 0)]
    return lambda p, h: jax.lax.reduce_window(h, start, reduce, *geometry), {}


def _scan(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Step, dict[str, np.ndarray]]:
    """A loop over a fixed number of steps, with a jitted body."""
    body = jax.jit(lambda carry, w: (jax.nn.relu(carry * w) - carry / 4, carry.sum(axis=-1)))
    return lambda p, h: jax.lax.scan(body, h, p["w"])[0], {
        "w": _coarse(rng, (int(rng.integers(1, 4)),))
    }


def _simple(step: Callable[[Any], Any]) -> Callable[..., tuple[Step, dict[str, np.ndarray]]]:
    return lambda rng, shape: (lambda p, h: step(h), {})


def _gated(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Step, dict[str, np.ndarray]]:
    return lambda p, h: (h @ p["a"]) * jax.nn.relu(h @ p["b"]), {
        k: _coarse(rng, (shape[-1], 2)) for k in "ab"
    }


STEPS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "pooling": _pooling,
    "scan": _scan,
    "gated": _gated,
    "relu": _simple(jax.nn.relu),
    "leaky": _simple(lambda h: jax.nn.leaky_relu(h, 0.25)),
    "abs": _simple(jnp.abs),
    "clip": _simple(lambda h: jnp.clip(h, -0.5, 1.5)),
    "relu6": _simple(jax.nn.relu6),
    "where": _simple(lambda h: jnp.where(h > 0.25, h, h.sum(axis=-1, keepdims=True))),
    "square": _simple(lambda h: h**2 / 8),
    "residual": _simple(lambda h: h + jax.nn.relu(h[:, ::-1])),
    "transpose": _simple(lambda h: jnp.swapaxes(h, 1, 2)),
    "concatenate": _simple(lambda h: jnp.concatenate([h, -h], axis=-1)),
    "pad": _simple(lambda h: jnp.pad(h, ((0, 0), (1, 0), (0, 0), (0, 0)))),
    "slice": _simple(lambda h: h[:, ::2]),
    "roll": _simple(lambda h: jnp.roll(h, 1, axis=2)),
    "cumulated": _simple(lambda h: jnp.cumsum(h, axis=1) / 2),
    "sorted out": _simple(lambda h: h - h.mean(axis=(1, 2), keepdims=True)),
    "running product": _simple(lambda h: jnp.cumprod(h, axis=2) / 4),
    "running largest": _simple(lambda h: jax.lax.cummax(h, axis=1, reverse=True)),
    "running smallest": _simple(lambda h: h - jax.lax.cummin(h, axis=2)),
    "sorted": _simple(lambda h: jnp.sort(h, axis=1) / 2),
    "two largest": _simple(lambda h: jax.lax.top_k(h[..., :2], min(2, h.shape[-1]))[0]),
    "at the smallest": _simple(
        lambda h: h - jnp.take_along_axis(h, jnp.argmin(h, axis=1)[:, None], axis=1)
    ),
    "product": _simple(lambda h: h * h[..., :2].prod(axis=-1, keepdims=True) / 16),
    "largest": _simple(lambda h: h + h.max(axis=2, keepdims=True)),
    "nested": _simple(jax.jit(lambda h: jax.jit(jax.nn.relu)(h) - h.min(axis=1, keepdims=True))),
    "constant branch": _simple(
        lambda h: jax.lax.cond(True, lambda z: z * 0.5, lambda z: z + 1.0, h)
    ),
    "einsum": _simple(lambda h: jnp.einsum("nijc,nijd->nicd", h, h)[..., :2] / 16),
}


def _coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Dyadic numbers, some zero: ties are frequent."""
    return rng.integers(-4, 5, shape) / 4.0


def draw(rng: np.random.Generator) -> tuple[Any, dict[str, Any], np.ndarray, list[str]]:
    """A program of one to four steps and a dense layer, its parameters, and two samples."""
    while True:
        names = [str(name) for name in rng.choice(sorted(STEPS), int(rng.integers(1, 5)))]
        shape, steps, params = (4, 3, 2), [], {}
        for index, name in enumerate(names):
            step, mine = STEPS[name](rng, shape)
            steps.append((f"{index} {name}", step))
            params[f"{index} {name}"] = mine
            try:
                shape = jax.eval_shape(
                    lambda h, s=step, p=mine: s(p, h), jax.ShapeDtypeStruct((2, *shape), np.float32)
                ).shape[1:]
            except (TypeError, ValueError):
                break  # the window does not fit: draw again
            if 0 in shape or int(np.prod(shape)) > 96:
                break
        else:
            params["dense"] = {"w": _coarse(rng, (int(np.prod(shape)), 2))}

            def f(p: Any, x: Any, steps: Any = tuple(steps)) -> Any:
                for name, step in steps:
                    x = step(p[name], x)
                return x.reshape(len(x), -1) @ p["dense"]["w"]

            return f, dict(params), _coarse(rng, (2, 4, 3, 2)), names


@pytest.mark.parametrize("part", range(2))
def test_programs_drawn_at_random(part: int, draws, tally):
    rng = np.random.default_rng(1000 + part)
    seen: set[str] = set()
    for _ in range(draws(6)):
        f, params, x, names = draw(rng)
        check_arithmetics(f, params, x)
        seen |= set(names)
    tally(len(seen), of=len(STEPS), what="kinds of steps drawn")


@pytest.mark.parametrize(
    "jump",
    [
        jnp.sign,
        jnp.floor,
        jnp.round,
        lambda h: h.astype(int).astype(h.dtype),
    ],
)
def test_discontinuous_operations_are_refused_where_they_matter(jump, rng):
    params, x = {"w": rng.normal(size=(3, 3))}, rng.normal(size=(2, 3))
    assert not trace(lambda p, z: jump(z @ p["w"]) @ p["w"], params, x).exact
    with pytest.raises(NoExactAnswer, match="rational operations"):
        check_arithmetics(lambda p, z: jump(z @ p["w"]) @ p["w"], params, x)
