"""The cast of described networks: `nm.Sequential` with every kind of layer, shared by the tests
of models and of infinite width.
"""

import neuromanifold as nm
from neuromanifold.models.layers import (
    Attention,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    LayerNorm,
    Residual,
    Sum,
)

DENSE = nm.Sequential(
    Dense(4, weight_std=1.3, bias_std=0.3), "tanh", Dense(2, bias=False), input_shape=(3,)
)
POOLED = nm.Sequential(
    Conv(4, 3, strides=2), "relu", AvgPool(2, strides=1), Conv(3, 2, padding="VALID"), "gelu", GlobalAvgPool(), Dense(2),
    input_shape=(8, 7, 2),
)  # fmt: skip
RESIDUAL = nm.Sequential(
    Conv(4, 3), Residual("relu", Conv(4, 3), "erf", Conv(4, 3, bias=False)), "abs", Flatten(), Dense(1), input_shape=(5, 2)
)  # fmt: skip
SUM = nm.Sequential(
    Dense(4), "relu", Sum(Dense(3), (Dense(5), "sin", Dense(3))), "relu", Dense(1), input_shape=(3,)
)
NORMALISED = nm.Sequential(
    Conv(4, 3), LayerNorm(positions=True, eps=1e-5), "relu", GlobalAvgPool(), Dense(1), input_shape=(5, 2)
)  # fmt: skip
ATTENTIVE = nm.Sequential(
    Dense(4), Residual(Attention(4, heads=2, key_features=3, bias=False)), LayerNorm(), "relu", Flatten(), Dense(1),
    input_shape=(3, 2, 3),
)  # fmt: skip
EVERYTHING = nm.Sequential(
    Conv(4, 3, weight_std=1.3, bias_std=0.4),
    "relu",
    Residual("tanh", Conv(4, 3, bias=False)),
    Sum(AvgPool(2), (Conv(4, 2, strides=2, padding="VALID"), "erf")),
    Attention(4, heads=2),
    LayerNorm(),
    Flatten(),
    Dense(2, weight_std=0.9),
    input_shape=(4, 4, 3),
)

WITH_LIMITS = {
    "dense": DENSE,
    "pooled": POOLED,
    "residual": RESIDUAL,
    "sum": SUM,
    "normalised": NORMALISED,
    "attentive": ATTENTIVE,
}
