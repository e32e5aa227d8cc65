# %% [markdown]
# # Track a training
#
# You keep your own training loop, in JAX or PyTorch; `nm.Tracker` looks at the network every few steps. Here we run full-batch gradient descent on a small ReLU network, with a large learning rate on purpose.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

net = nm.MLP((2, 12, 12, 1), "relu")
params = net.init(key=jax.random.key(3), scheme=nm.init.he)
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (60, 2)).astype("float32")
y = (np.abs(x[:, :1]) - x[:, 1:] ** 2).astype("float32")

step = jax.jit(
    lambda p: jax.tree.map(
        lambda a, g: a - 0.15 * g, p, jax.grad(lambda q: nm.losses.mse(net(q, x), y))(p)
    )
)

# %% [markdown]
# Three lines are the loop, two are the tracker's. With PyTorch you would write `nm.Tracker(module, x, y)` and `tracker(number)`.

# %%
tracker = nm.Tracker(net, x, y, every=100, samples=40)
for number in range(801):
    tracker(number, params)
    params = step(params)
timeline = tracker.timeline
print(timeline)

# %% [markdown]
# **What it saw.** The loss falls; the functional dimension, exact at every record, says how many directions the network uses; the kernel moves away from its first value, so this is not the kernel regime;
# the conserved quantities drift, as they do for finite steps.

# %% alt="Four panels over the training steps: loss, functional dimension, how far the tangent kernel has moved, and the sharpness of the loss"
print(*sorted(timeline.data.data_vars), sep=", ")
names = [
    name
    for name in ("loss", "functional_dimension", "kernel_drift", "sharpness")
    if name in timeline.data
]
figure, axes = plt.subplots(2, 2, figsize=(6.4, 4.4))
for axis, name in zip(axes.flat, names, strict=True):
    axis.plot(timeline.steps, timeline.data[name].values, "o-", ms=3)
    axis.set(title=name.replace("_", " "), xlabel="step")
plt.show()

# %% [markdown]
# `folder="runs/first"` writes `timeline.csv` and an event file for TensorBoard at every record. Read on: [Your own network](../your-network.md).
