"""Does the translation compute what the module computes? Outputs and a derivative, in float64, on random inputs."""

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.adapters.packages import need
from neuromanifold.models.adapters.program_model import ProgramModel
from neuromanifold.models.adapters.torch_tensors import to_numpy
from neuromanifold.numerics.archives import first_line
from neuromanifold.numerics.precision import arithmetic, is_floating, promote

Arrays = list[np.ndarray]
# PyTorch's own backward passes are less exact than its forward ones: that of hardsigmoid has 1/6 in float32, which is 3e-8.
_SLACK = 100


def compare(
    module: Any,
    runner: ProgramModel,
    params: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    leaves: list[Any],
    tied: Mapping[str, str],
) -> str:
    """How far outputs and ⟨v, J u⟩ are from the module's, as a sentence; too far is an error.

    The module's side runs backwards (vᵀJ by PyTorch's autograd), the translation's forwards (J u): two routes to one number.
    Three samples, then the last two of them, whose rows must not change.
    """
    rng, own = np.random.default_rng(0), runner.program.dtype
    dtype, x, large = _reference(module, own, leaves, rng)
    rtol = float(jnp.finfo(dtype).eps) ** 0.5
    weights = [rng.standard_normal(y[1:].shape) if is_floating(y) else None for y in large]
    try:
        small, gradient = _backwards(module, dtype, own, [a[1:] for a in x], weights, tied)
    except RuntimeError as error:
        raise ValueError(
            f"`module` cannot be differentiated by PyTorch itself ({first_line(error)}); mend that first."
        ) from None
    _check_rows(large, small, rtol)
    direction = {name: rng.standard_normal(np.shape(leaf)) for name, leaf in params.items()}
    found, found_small, tangents = _forwards(runner, params, constants, x, direction, dtype)
    outputs = max(_deviation(a, b) for a, b in zip([*large, *small], [*found, *found_small], strict=True))
    derivative = _derivative_deviation(gradient, direction, weights, tangents)
    _check(outputs, derivative, rtol, dtype)
    return (
        f"outputs within {outputs:.0e} and a directional derivative within {derivative:.0e} of the module's, "
        f"in {dtype}, at 2 and 3 samples"
    )


def _check(outputs: float, derivative: float, rtol: float, dtype: str) -> None:
    if not outputs <= rtol:
        raise ValueError(
            f"`module` and its translation differ by {outputs:.1e} of the largest output ({dtype}); the translation is not handed "
            "out: please report the module, and wrap the network as nm.FunctionModel for now."
        )
    if not derivative <= _SLACK * rtol:
        raise ValueError(
            f"`module` has gradients of its own: they differ by {derivative:.1e} from the derivative of what it computes (a custom "
            "autograd.Function, torch.no_grad or hooks); replace those steps by differentiable ones."
        )


def _reference(module: Any, own: str, leaves: list[Any], rng: np.random.Generator) -> tuple[str, Arrays, Arrays]:
    """(dtype, x, outputs) of the module cast to float64, or left in its own dtype where its code allows no other."""
    torch = need("torch")

    drawn, given = [_drawn(leaf, rng) for leaf in leaves], [_array(leaf) for leaf in leaves]
    problem = "not a number"
    for dtype, x in ((dtype, x) for dtype in dict.fromkeys(("float64", own)) for x in (drawn, given)):
        module.to(getattr(torch, dtype))
        try:
            with torch.no_grad():
                outputs = [to_numpy(y) for y in _called(module, dtype, own, x)]
        except Exception as error:
            problem = first_line(error)
            continue
        if all(np.isfinite(y.astype(float)).all() for y in outputs if is_floating(y)):
            return dtype, x, outputs
    raise ValueError(
        f"`module` gives no finite output, neither on `example` nor on random inputs like it ({problem}); pass another example."
    )


def _drawn(leaf: Any, rng: np.random.Generator) -> np.ndarray:
    """Random data like the example's: normal with its mean and deviation, or a shuffle of its entries where that is no number."""
    values = _array(leaf)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return rng.choice(values.ravel(), values.shape)
    return values.mean() + (values.std() or 1.0) * rng.standard_normal(values.shape)


def _array(leaf: Any) -> np.ndarray:
    return (leaf.double() if leaf.is_floating_point() else leaf).cpu().numpy()


def _called(module: Any, dtype: str, own: str, x: Arrays) -> tuple[Any, ...]:
    """The module's outputs; in float64, a dtype that its code names is read as float64 too."""
    torch = need("torch")

    device = next(module.parameters()).device
    tensors = [torch.from_numpy(a).to(device) for a in x]
    tensors = [t.to(getattr(torch, dtype)) if t.is_floating_point() else t for t in tensors]
    with _widened(own) if dtype != own else contextlib.nullcontext():
        return module(*tensors)


@contextlib.contextmanager
def _widened(own: str) -> Generator[None]:
    """PyTorch with float64 in the place of every floating dtype as wide as the module's own, as the program has it."""
    torch = need("torch")

    narrow = getattr(torch, own)
    wide = {t for t in (torch.bfloat16, torch.float16, torch.float32) if t.itemsize >= narrow.itemsize}
    norms = (torch.rms_norm, torch.nn.functional.rms_norm)

    class Widened(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args = [torch.float64 if isinstance(a, torch.dtype) and a in wide else a for a in args]
            kwargs = {
                k: torch.float64 if isinstance(v, torch.dtype) and v in wide else v for k, v in (kwargs or {}).items()
            }
            if func in norms and len(args) < 4 and kwargs.get("eps") is None:
                kwargs["eps"] = torch.finfo(narrow).eps
            return (torch.Tensor.double if func is torch.Tensor.float else func)(*args, **kwargs)

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widened():
            yield
    finally:
        torch.set_default_dtype(default)


def _backwards(
    module: Any, dtype: str, own: str, x: Arrays, weights: list[Any], tied: Mapping[str, str]
) -> tuple[Arrays, dict[str, np.ndarray]]:
    """(outputs, vᵀJ) by PyTorch's reverse mode; what does not depend on the parameters has none."""
    torch = need("torch")

    parameters = {name.removeprefix("module."): p for name, p in module.named_parameters()}
    with torch.enable_grad():
        outputs = _called(module, dtype, own, x)
        loss = [(y * torch.from_numpy(v).to(y)).sum() for y, v in zip(outputs, weights, strict=True) if v is not None]
        loss = [term for term in loss if term.requires_grad]
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) if loss else ()
    gradient: dict[str, Any] = {}
    for name, g in zip(parameters, found, strict=bool(found)):
        if g is not None:
            gradient[tied[name]] = gradient.get(tied[name], 0.0) + to_numpy(g)
    return [to_numpy(y) for y in outputs], gradient


def _forwards(
    runner: ProgramModel, params: Any, constants: Any, x: Arrays, direction: Any, dtype: str
) -> tuple[Arrays, Arrays, Arrays]:
    """(f at three samples, f at two, J u at two) by JAX's forward mode, compiled once."""

    @jax.jit
    def evaluate(theta: Any, u: Any, constants: Any, x: list[Any]) -> tuple[Any, Any, Any]:
        small, tangents = jax.jvp(lambda theta: runner.outputs(theta, constants, [a[1:] for a in x]), (theta,), (u,))
        return runner.outputs(theta, constants, x), small, tangents

    with arithmetic():
        arguments = promote((dict(params), direction), dtype)
        found = evaluate(*arguments, dict(constants), promote(list(x), dtype))
        return jax.tree.map(np.asarray, found)


def _check_rows(large: Arrays, small: Arrays, rtol: float) -> None:
    for index, (a, b) in enumerate(zip(large, small, strict=True)):
        if a[1:].shape != b.shape or not _deviation(a[1:], b) <= rtol:
            raise ValueError(
                f"`module` mixes samples: rows of its output (number {index + 1}, shape {a.shape} for 3 samples) change with the "
                "other rows; the first axis must count the samples (build recurrent and attention layers with batch_first=True)."
            )


def _deviation(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, over the largest entry; infinite where shapes or undefined entries differ."""
    if a.shape != b.shape:
        return np.inf
    a, b = (np.asarray(c, np.float64) for c in (a, b))
    defined = np.isfinite(a)
    if not np.array_equal(defined, np.isfinite(b)) or not a.size:
        return 0.0 if not a.size else np.inf
    largest = np.abs(a[defined]).max(initial=0.0)
    return float(np.abs(a[defined] - b[defined]).max(initial=0.0) / (largest or 1.0))


def _derivative_deviation(gradient: Any, direction: Any, weights: list[Any], tangents: Arrays) -> float:
    """|⟨vᵀJ, u⟩ − ⟨v, J u⟩| over the norm of the first's terms, which is the size that the sum has for random u."""
    terms = [g * direction[name] for name, g in gradient.items()]
    forwards = sum(float(np.sum(v * t)) for v, t in zip(weights, tangents, strict=True) if v is not None)
    size = float(np.sqrt(sum(float(np.sum(t * t)) for t in terms)))
    return abs(sum(float(np.sum(t)) for t in terms) - forwards) / (size or 1.0)
