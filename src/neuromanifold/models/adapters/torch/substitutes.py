"""Steps of a module that PyTorch cannot export, written with ones that it can, while it records."""

import contextlib
from collections.abc import Generator
from typing import Any

from neuromanifold.runtime.packages import need


class _Context:
    """What a custom function keeps between its forward and its backward pass."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


@contextlib.contextmanager
def own_gradients() -> Generator[list[str]]:
    """Every custom `autograd.Function` F with the backward pass B as y = F(x₀) + B(x₀)ᵀ(x − x₀)
    at x₀ = x, detached: the value of F and the derivative that B says.

    B is applied itself, so this is right where it is symmetric: entry by entry, as surrogate
    gradients, straight-through steps and reversed gradients are. The comparison with the module
    decides. Gives the names of the functions that were met.
    """
    function, met = need("torch").autograd.function.Function, []
    before = function.__dict__["apply"]

    def apply(cls: Any, *inputs: Any) -> Any:
        met.extend({cls.__name__} - {*met})
        return _linear(cls, inputs)

    function.apply = classmethod(apply)
    try:
        yield met
    finally:
        function.apply = before


def _linear(function: Any, inputs: tuple[Any, ...]) -> Any:
    torch, context = need("torch"), _Context()
    held = [x.detach() if torch.is_tensor(x) else x for x in inputs]
    moves = [torch.is_tensor(x) and x.is_floating_point() for x in inputs]
    context.needs_input_grad = tuple(moves)
    if function.setup_context is torch.autograd.function.Function.setup_context:
        y = function.forward(context, *held)
    else:
        y = function.forward(*held)
        function.setup_context(context, tuple(held), y)
    for i, moving in enumerate(moves):
        if moving and inputs[i].shape == y.shape:
            back = function.backward(context, inputs[i] - held[i])
            slope = back[i] if isinstance(back, tuple) else back
            y = y if slope is None else y + slope
    return y


@contextlib.contextmanager
def keep_sequences_padded() -> Generator[None]:
    """Packed sequences of one sample, kept at their padded length T, so that the length may be
    data: step t has `batch_sizes[t]` = 1 before the end and 0 behind it, where states stay.
    """
    torch, sizes = need("torch"), []

    def is_ours(args: Any, place: int) -> bool:
        return len(args) > place and any(args[place] is known for known in sizes)

    class Padded(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            if name == "_pack_padded_sequence":
                x, lengths, batch_first = args
                if x.shape[0 if batch_first else 1] == 1:
                    x = x[0] if batch_first else x[:, 0]
                    sizes.append((torch.arange(len(x)) < lengths).long())
                    return x, sizes[-1]
            elif name == "__getitem__" and is_ours(args, 0) and args[1] == 0:
                return 1  # how many sequences have a first step
            elif name == "_pad_packed_sequence" and is_ours(args, 1):
                return _pad(*args)
            elif name in _CELLS and is_ours(args, 1):
                return _recurrent(name, *args)
            return func(*args, **(kwargs or {}))

    with Padded():
        yield


def _pad(x: Any, sizes: Any, batch_first: bool, value: float, total: int) -> tuple[Any, Any]:
    torch = need("torch")
    x = torch.where(sizes[:, None] > 0, x, torch.full_like(x, value))
    x = torch.nn.functional.pad(x, (0, 0, 0, total - len(x)), value=value)
    return x[None] if batch_first else x[:, None], sizes.sum(0, keepdim=True)


_CELLS = {"lstm": "lstm_cell", "gru": "gru_cell", "rnn_tanh": "rnn_tanh_cell"}
_CELLS |= {"rnn_relu": "rnn_relu_cell"}


def _recurrent(
    name: str,
    x: Any,
    sizes: Any,
    state: Any,
    weights: list[Any],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Any, ...]:
    """Layers of a recurrence over one padded sequence: (outputs, *final states)."""
    torch = need("torch")
    directions, each = 1 + bidirectional, 2 + 2 * has_biases
    if (train and dropout) or len(weights) != layers * directions * each:
        raise ValueError("dropout in training mode, or projections")
    cell, states = getattr(torch, _CELLS[name]), state if isinstance(state, tuple) else (state,)
    last: list[tuple[Any, ...]] = []
    for layer in range(layers):
        rows: list[Any] = []
        for direction in range(directions):
            i = layer * directions + direction
            now, found = tuple(s[i] for s in states), {}
            for t in range(len(x))[:: -1 if direction else 1]:
                given = now if name == "lstm" else now[0]
                new = cell(x[t][None], given, *weights[i * each : (i + 1) * each])
                new = new if name == "lstm" else (new,)
                now = tuple(torch.where(sizes[t] > 0, a, b) for a, b in zip(new, now, strict=True))
                found[t] = now[0]
            rows.append(torch.cat([found[t] for t in range(len(x))]))
            last.append(now)
        x = torch.cat(rows, -1)
    return x, *(torch.stack(parts) for parts in zip(*last, strict=True))
