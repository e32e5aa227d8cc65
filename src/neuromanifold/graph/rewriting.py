"""A jaxpr with other constants or other equations, at every depth; the same object wherever
nothing changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex


def _same(given: Any) -> Any:
    return given


@dataclass(frozen=True)
class Rewriting:
    """What becomes of each constant and of each equation, inner jaxprs first.

    JAX knows a jaxpr again by its identity, so what stays equal stays the same object.
    """

    constant: Callable[[Any], Any] = _same
    equation: Callable[[Any], Any] = _same

    def closed(self, closed: Any) -> Any:
        """A closed jaxpr, rewritten."""
        consts, jaxpr = (
            [self.constant(const) for const in closed.consts],
            self._opened(closed.jaxpr),
        )
        same = jaxpr is closed.jaxpr and all(
            a is b for a, b in zip(consts, closed.consts, strict=True)
        )
        return closed if same else jex.ClosedJaxpr(jaxpr, consts)

    def _opened(self, jaxpr: Any) -> Any:
        equations = [self.equation(self._within(equation)) for equation in jaxpr.eqns]
        outputs = [self._atom(atom) for atom in jaxpr.outvars]
        same = all(
            a is b
            for a, b in zip((*equations, *outputs), (*jaxpr.eqns, *jaxpr.outvars), strict=True)
        )
        return jaxpr if same else jaxpr.replace(eqns=equations, outvars=outputs)

    def _within(self, equation: Any) -> Any:
        atoms = [self._atom(atom) for atom in equation.invars]
        options = {name: self._option(option) for name, option in equation.params.items()}
        same = all(a is b for a, b in zip(atoms, equation.invars, strict=True))
        same &= all(options[name] is option for name, option in equation.params.items())
        return equation if same else equation.replace(invars=atoms, params=options)

    def _option(self, option: Any) -> Any:
        if isinstance(option, jex.ClosedJaxpr):
            return self.closed(option)
        if isinstance(option, jex.Jaxpr):
            return self._opened(option)
        if isinstance(option, tuple) and any(
            isinstance(part, jex.ClosedJaxpr | jex.Jaxpr) for part in option
        ):
            parts = [self._option(part) for part in option]
            if all(a is b for a, b in zip(parts, option, strict=True)):
                return option
            return tuple(parts) if type(option) is tuple else type(option)(*parts)
        return option

    def _atom(self, atom: Any) -> Any:
        if not isinstance(atom, jex.Literal) or (value := self.constant(atom.val)) is atom.val:
            return atom
        return jex.Literal(value, atom.aval)
