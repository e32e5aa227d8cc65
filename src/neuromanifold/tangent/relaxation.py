"""How one mode of a linear system relaxes: at once, or with friction."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Relaxation:
    """The share g(s, t) of its way to rest that a mode of stiffness s has gone at time t.

    Without `friction` ȧ = 1 − sa, so that g = 1 − e^{−st}. With friction γ it is the heavy ball ä + γȧ + sa = 1 from rest:

    g = (s₊(1 − e^{s₋t}) − s₋(1 − e^{s₊t}))/(s₊ − s₋),   s± = −γ/2 ± √(γ²/4 − s).

    Gradient descent with step η and momentum β follows it with γ = (1 − β)/√η, at t = √η times the number of steps.

    >>> float(Relaxation(None).share(np.array([1.0]), np.log(2.0))[0])
    0.5
    >>> float(Relaxation(0.0).share(np.array([1.0]), np.pi)[0])        # an undamped ball has overshot by as much again
    2.0
    """

    friction: float | None

    def __post_init__(self):
        if self.friction is not None and not (np.isfinite(self.friction) and self.friction >= 0):
            raise ValueError(f"`friction` is {self.friction}; pass zero, a positive number, or None for gradient flow.")

    def share(self, stiffness: np.ndarray, t: float) -> np.ndarray:
        """g(s, t) for s > 0."""
        if self.friction is None:
            return -np.expm1(-stiffness * t)
        if np.isinf(t):
            return np.ones_like(stiffness)
        half = self.friction / 2
        # At critical damping the two roots meet; a relative distance of 1e-8 changes g by its square.
        discriminant = half**2 - stiffness
        discriminant = np.where(np.abs(discriminant) < 1e-16 * stiffness, -1e-16 * stiffness, discriminant)
        omega = np.sqrt(discriminant.astype(np.complex128))
        fast = -(half + omega)
        slow = stiffness / fast
        return np.real((slow * -np.expm1(fast * t) + fast * np.expm1(slow * t)) / (slow - fast))

    def impulse(self, stiffness: np.ndarray, t: float) -> np.ndarray:
        """g(s, t)/s, with its limit where s vanishes."""
        tiny = np.finfo(np.float64).tiny ** 0.5
        positive = stiffness > tiny
        safe = np.where(positive, stiffness, 1.0)
        return np.where(positive, self.share(safe, t) / safe, self._at_zero(t))

    def _at_zero(self, t: float) -> float:
        """t, or with friction t/γ − (1 − e^{−γt})/γ²; t²/2 without any damping."""
        if self.friction is None or np.isinf(t):
            return t
        if self.friction * t < 1e-6:
            return t**2 / 2
        return (t + np.expm1(-self.friction * t) / self.friction) / self.friction
