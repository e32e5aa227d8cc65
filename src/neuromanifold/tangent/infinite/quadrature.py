"""`Quadrature`: how expectations of an activation without closed form are computed, and which dual that makes."""

from dataclasses import dataclass

import numpy as np

from neuromanifold.models.activation import Activation, Mixed
from neuromanifold.tangent.infinite.duals import Dual, closed_form, mixture
from neuromanifold.tangent.infinite.panels import PANEL_ORDERS, SplitPanels
from neuromanifold.tangent.infinite.series import ORDERS, HermiteSeries


@dataclass(frozen=True)
class Quadrature:
    """How expectations over an activation without closed form are computed.

    `rtol` bounds the estimated error of E[σ(u)σ(v)], relative to √(E[σ(u)²] E[σ(v)²]), and likewise for the slopes. `kinks`
    are the points where σ or a derivative of it jumps: integrals are split there. `reach` is the radius, in standard
    deviations, of the split integrals. `order` fixes the number of nodes; without it the data decide, and under `jit`,
    where they cannot be seen, 1024 are taken (64 between kinks) and kernels that miss `rtol` are nan. `always` takes
    quadrature even where a closed form is known, which tests both.
    """

    rtol: float = 1e-12
    kinks: tuple[float, ...] = ()
    reach: float = 10.0
    order: int | None = None
    always: bool = False

    def __post_init__(self):
        if not 0 < self.rtol < 1:
            raise ValueError(f"`rtol` is {self.rtol!r}; pass a number between 0 and 1, such as 1e-12.")
        if not np.isfinite(self.kinks).all():
            raise ValueError(f"`kinks` is {self.kinks!r}; pass finite numbers.")
        if self.order is not None and self.order not in (PANEL_ORDERS if self.kinks else ORDERS[2:]):
            allowed = PANEL_ORDERS if self.kinks else ORDERS[2:]
            raise ValueError(f"`order` is {self.order!r}; pass one of {', '.join(map(str, allowed))}, or None.")

    @property
    def ladder(self) -> tuple[int, ...]:
        """The numbers of nodes to try, in order."""
        if self.order is not None:
            return (self.order,)
        return PANEL_ORDERS if self.kinks else ORDERS[2:]

    @property
    def blind(self) -> int:
        """The number of nodes where the data cannot be seen."""
        return self.order or (PANEL_ORDERS[-1] if self.kinks else 1024)

    def dual(self, entry: Activation | Mixed, order: int) -> Dual:
        """The dual of a layer's activation, with that many nodes where it needs quadrature."""
        parts = ((entry, 1),) if isinstance(entry, Activation) else entry.parts
        width = sum(count for _, count in parts)
        return mixture(tuple((count / width, self._dual(activation, order)) for activation, count in parts))

    def needs_order(self, entry: Activation | Mixed) -> bool:
        """Whether the number of nodes matters to a layer's activation."""
        parts = (entry,) if isinstance(entry, Activation) else tuple(activation for activation, _ in entry.parts)
        return any(not self._exact(activation) for activation in parts)

    def _exact(self, activation: Activation) -> bool:
        return not self.always and (activation.polynomial is not None or closed_form(activation) is not None)

    def _dual(self, activation: Activation, order: int) -> Dual:
        known = None if self.always else closed_form(activation)
        if known is not None:
            return known
        if not self.always and activation.polynomial is not None:
            return HermiteSeries(activation, len(activation.polynomial), exact=True)
        if self.kinks:
            return SplitPanels(activation, order, self.kinks, self.reach)
        return HermiteSeries(activation, order)
