# %% [markdown]
# # Bottleneck structure
#
# Deep networks with weight decay find functions of low rank and pass them through a bottleneck: in the middle layers only as many
# directions are large as the function needs. We train such a network, look at the bottleneck, and check the bound behind it.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm
from neuromanifold import bottleneck

A = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])  # a linear map of rank 2
expansion = bottleneck.cost_expansion(A)
print(expansion)
for depth in (4, 16, 64):
    cost = bottleneck.representation_cost(A, depth)
    first, second = expansion.r0 * depth, expansion.r1
    print(f"depth {depth:2d}: least ‖θ‖² {cost:8.4f}, R⁰·L + R¹ = {first + second:8.4f}")

# %% [markdown]
# The least squared norm of a deep *linear* network that computes $A$ is $L\sum_i s_i^{2/L} = L\,\mathrm{Rank}(A) + 2\log|A|_+ + O(1/L)$: the number of
# layers multiplies the rank, so that depth with weight decay prefers low rank. Now we train a ReLU network on a task of rank 2 in five dimensions:

# %%
net = nm.MLP((5, *(20,) * 7, 2), "relu")
rng = np.random.default_rng(0)
x = rng.standard_normal((120, 5)).astype("float32")
y = np.stack([np.maximum(x[:, 0], 0) + x[:, 1], np.abs(x[:, 1]) - x[:, 0]], axis=1)
params = net.init(key=jax.random.key(0), scheme=nm.init.he, runs=1)
training = nm.train(
    *(net, params, x, y),
    key=jax.random.key(1),
    epochs=3000,
    optimizer=nm.dynamics.adam_l2(3e-3, 2e-3),
    probes=(nm.probes.weight_norm, nm.probes.loss(nm.losses.mse)),
    every=100,
)
end = jax.tree.map(lambda leaf: np.asarray(leaf[0], "float64"), training.params)
print(f"loss {float(training.history['loss'].values.ravel()[-1]):.4f}")

# %%
structure = bottleneck.bottleneck_structure(net, end, x[:60])
print(structure)

# %% alt="Singular values of every weight matrix: in the middle layers only a few are large. Beside it the squared norm of the weights falling in training"
figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3))
for number, layer in enumerate(end, start=1):
    values = np.linalg.svd(np.asarray(layer.weight), compute_uv=False)
    left.plot(np.full(len(values), number), values, "_", ms=12, mew=1.5)
left.set(xlabel="layer", ylabel="singular values", title="few directions stay large")
right.plot(
    training.history["epoch"], training.history["weight_norm"].values.ravel() ** 2, label="‖θ‖²"
)
right.set(xlabel="epoch", title="weight decay at work")
right.legend()
plt.show()

# %% [markdown]
# A star marks a layer in the bottleneck: its weights are close to a partial isometry (a matrix with singular values 1 and 0), and `residual` is the squared distance.
# The middle layers have rank 3, one above the function's own two; the paper reports the same for moderate depths.
#
# **The bound.** For every network and every sample, $\Vert\theta\Vert^2$ is at least a number that the Jacobian's rank and its pseudo-determinant determine [bottleneck, Thm 6].

# %%
bound = bottleneck.norm_bound(net, end, x[:60])
print(bound)

# %% [markdown]
# Read on: [Representation cost and the bottleneck](../paper/bottleneck.md), with the figures of the paper made again at its own scale.
