"""The NTK as a linear operator: products by one VJP and one JVP, never a matrix."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx

from neuromanifold.models.arguments import Model, Params, Samples, check_arguments, output_size
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics.precision import boundary, widest
from neuromanifold.numerics.validation import leading_axis
from neuromanifold.tangent.kernel.ntk import ntk


class NTKOperator(lx.AbstractLinearOperator):
    """Θ = J Jᵀ on ℝ^{n·o}, symmetric positive semidefinite, in the dtype of `params` and `x`."""

    f: Model = eqx.field(static=True)
    params: Any
    x: Any
    size: int = eqx.field(static=True)

    def __repr__(self) -> str:
        return f"NTKOperator({self.size:,}×{self.size:,} {self.in_structure().dtype}, of {self.f})"

    def mv(self, vector: Any) -> Any:
        """Θv, as v came."""
        with boundary(vector) as leave:
            return leave(
                kernel_product(
                    self.f, self.params, self.x, jnp.asarray(vector, self.in_structure().dtype)
                )
            )

    def as_matrix(self) -> Any:
        """Return Θ itself."""
        return ntk(self.f, self.params, self.x)

    def transpose(self) -> "NTKOperator":
        """Return Θᵀ = Θ."""
        return self

    def in_structure(self) -> jax.ShapeDtypeStruct:
        """A flat vector with one entry per (sample, output)."""
        return jax.ShapeDtypeStruct((self.size,), widest(self.params, self.x))

    def out_structure(self) -> jax.ShapeDtypeStruct:
        """Return the structure of the outputs, which is that of the inputs."""
        return self.in_structure()


for _query in (lx.is_symmetric, lx.is_positive_semidefinite):
    _query.register(NTKOperator, lambda operator: True)
for _query in (
    lx.is_diagonal,
    lx.is_tridiagonal,
    lx.is_lower_triangular,
    lx.is_upper_triangular,
    lx.is_negative_semidefinite,
    lx.has_unit_diagonal,
):
    _query.register(NTKOperator, lambda operator: False)
for _transform in (lx.linearise, lx.conj):
    _transform.register(NTKOperator, lambda operator: operator)
lx.materialise.register(
    NTKOperator,
    lambda operator: lx.MatrixLinearOperator(operator.as_matrix(), lx.positive_semidefinite_tag),
)
lx.diagonal.register(NTKOperator, lambda operator: operator.as_matrix().diagonal())


def ntk_operator(f: Model, params: Params, x: Samples) -> NTKOperator:
    """Return Θ = J Jᵀ on ℝ^{n·o} as a `lineax` operator: `ntk_operator(f, params, x).mv(v)`.

    >>> operator = nm.ntk_operator(lambda params, x: params * x, 2.0, np.array([[1.0], [3.0]]))
    >>> operator.mv(np.array([1.0, 0.0])).tolist()
    [1.0, 3.0]
    """
    with boundary(params, x) as leave:
        params, x = check_arguments(f, params, x)
        size = leading_axis(x) * output_size(f, params, x)
        return NTKOperator(f, leave(params), leave(x), size)


@jax.jit(static_argnums=0)
def kernel_product(f: Model, params: Any, x: Any, v: Any) -> Any:
    """J (Jᵀ v) for a flat v."""
    y, pullback = jax.vjp(lambda p: flat_outputs(f, p, x), params)
    (direction,) = pullback(v.reshape(y.shape).astype(y.dtype))
    return jax.jvp(lambda p: flat_outputs(f, p, x), (params,), (direction,))[1].ravel()
