"""How many nodes each activation needs: first from the range of its variances, then from the
errors that the passes report.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation, Mixed
from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.base import AbstractLayer
from neuromanifold.models.layers.branches import Elementwise, Residual, Sum
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.tangent.infinite.deviations import Deviation
from neuromanifold.tangent.infinite.program import Program
from neuromanifold.tangent.infinite.quadrature import Quadrature
from neuromanifold.tangent.infinite.series import settled_order

_GRID = 12
_SMALLEST = 1e-3


def first_orders(it: Program, largest: float, deviations: tuple[Deviation, ...]) -> tuple[int, ...]:
    """A guess at the nodes that each activation needs, from bounds on the variances; the passes
    check it.

    A weight layer maps a variance a to σ_w² a + σ_b², means over positions never raise the largest,
    sums add.
    """
    if not any(map(it.quadrature.needs_order, it.activations)):
        return tuple(it.quadrature.ladder[0] for _ in it.activations)
    bounds = _Bounds(
        it.quadrature, iter([Deviation(np.asarray(w), np.asarray(b)) for w, b in deviations]), []
    )
    bounds.through(it.random, largest)
    return tuple(bounds.orders)


@dataclass
class _Bounds:
    quadrature: Quadrature
    deviations: Any
    orders: list[int]

    def through(self, layers: tuple[AbstractLayer, ...], largest: float) -> float:
        for layer in layers:
            largest = self.step(layer, largest)
        return largest

    def step(self, layer: AbstractLayer, largest: float) -> float:
        match layer:
            case Dense() | Conv():
                spread = next(self.deviations).spread(1, layer.bias, "ntk")
                return float(spread.weight * largest + spread.bias)
            case Attention():
                spread = next(self.deviations).attention_spread((1, 1), layer.bias, "ntk")
                return float(spread.weight * largest + spread.bias)
            case Elementwise():
                return self.activation(layer.activation, largest)
            case LayerNorm():
                return 1.0
            case Residual():
                return largest + self.through(layer.layers, largest)
            case Sum():
                return sum(self.through(branch, largest) for branch in layer.branches)
        return largest

    def activation(self, entry: Activation | Mixed, largest: float) -> float:
        variances = np.geomspace(max(largest, 1e-300) * _SMALLEST, max(largest, 1e-300), _GRID)
        parts = (
            (entry,)
            if isinstance(entry, Activation)
            else tuple(activation for activation, _ in entry.parts)
        )
        ladder = self.quadrature.ladder
        found = [self._settled(activation, variances, ladder) for activation in parts]
        self.orders.append(max(order for order, _ in found))
        return max(float(np.nanmax(values)) for _, values in found)

    def _settled(
        self, activation: Activation, variances: np.ndarray, ladder: tuple[int, ...]
    ) -> tuple[int, np.ndarray]:
        if not self.quadrature.needs_order(activation):
            return ladder[0], np.asarray(
                self.quadrature.dual(activation, ladder[0]).own(variances).variance
            )
        if self.quadrature.kinks:
            return ladder[0], settled_order(activation, variances, (256,), 1.0)[1]
        return settled_order(activation, variances, ladder, self.quadrature.rtol)


def next_orders(it: Program, errors: Any) -> tuple[int, ...] | None:
    """More nodes where an error is too large; `None` where all are fine.

    >>> from neuromanifold.models.layers import Dense
    >>> wide = Program((Dense(1), Elementwise(nm.MLP((1, 1, 1), "tanh").activation[0])), (1,), "ntk", Quadrature(), (64,))
    >>> next_orders(wide, [1e-9]), next_orders(wide, [1e-13])
    ((128,), None)
    """
    ladder, orders = it.quadrature.ladder, list(it.orders)
    missed = [index for index, error in enumerate(errors) if not float(error) <= it.quadrature.rtol]
    if not missed:
        return None
    for index in missed:
        if not np.isfinite(float(errors[index])):
            return None
        if orders[index] == ladder[-1]:
            raise ArithmeticError(_refusal(it, index, float(errors[index])))
        orders[index] = ladder[ladder.index(orders[index]) + 1]
    return tuple(orders)


def _refusal(it: Program, index: int, error: float) -> str:
    entry, rule = it.activations[index], it.quadrature
    if rule.kinks:
        return (
            f"the quadrature for {entry} split at {rule.kinks} has not reached {rule.rtol:.0e} "
            f"(estimated error {error:.0e}); "
            "raise `rtol`, or name all its kinks."
        )
    return (
        f"the quadrature for {entry} has not reached {rule.rtol:.0e} with {it.orders[index]} "
        f"nodes (estimated error {error:.0e}); "
        "raise `rtol`, or name the points where the activation or a derivative of it jumps: "
        "quadrature=Quadrature(kinks=(…,))."
    )
