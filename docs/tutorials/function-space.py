# %% [markdown]
# # Function space of linear convolutional nets
#
# Convolutions compose to one convolution. Filters are polynomials, composing is multiplying, and the parameters over one end-to-end filter $v$ are its factorisations.
# This tutorial lists *all* of them and asks whether gradient flow on parameters is a flow on functions.

# %%
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm
from neuromanifold import functionspace as fs

net = nm.LinearConvNet((3, 2), (2, 1))  # filter sizes 3 and 2, strides 2 and 1
params = (np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))
v = net.end_to_end(params)
print("end-to-end filter", v)
print("dimension of the neuromanifold", fs.neuromanifold_dimension(net), "in a space of", len(v))

# %% [markdown]
# The differences of squared norms $\delta$ are constant along gradient flow. Over $(v, \delta)$ there are finitely many parameters:

# %%
over = fs.fiber(net, v, delta=5.0)
print(over)
print(f"spread of the tangent kernel over the fibre: {over.kernel_spread:.1e}")
print(np.round(fs.filter_kernel(net, over.params[0]), 3))

# %% [markdown]
# All of them have the same kernel, so the flow of $v$ depends on $v$ and $\delta$ alone. This is because the strides are above one. At stride one a cubic factorises in several ways, and
# the kernels differ:

# %%
plain = nm.LinearConvNet((3, 2), (1, 1))
cubic = fs.fiber(plain, np.array([0.0, 1.0, 1.0, 0.0]))  # x²y + xy²
print(cubic)
print(f"spread of the tangent kernel: {cubic.kernel_spread:.2f}")

# %% [markdown]
# Two parameters with equal $v$ and equal $\delta$, one loss: with strides the two functions stay equal for ever; without, they part at once.

# %%
rng = np.random.default_rng(0)


def paths(network, fibre, goal):
    signals = rng.standard_normal((6, 9))
    outputs = np.array(
        [
            [
                goal @ s[i : i + len(goal)]
                for i in range(0, 10 - len(goal), network.end_to_end_stride[0])
            ]
            for s in signals
        ]
    )
    loss = fs.filter_loss(network, signals, outputs / 3)
    return [fs.parameter_flow(network, p, loss=loss, t1=0.3).v for p in fibre.params]


strided = paths(net, over, np.array([1.0, 0.5, -1.0, 2.0, 1.0]))
parted = paths(plain, cubic, np.array([1.0, 0.5, -1.0, 2.0]))
print(f"strides (2, 1): largest distance {max(np.abs(p - strided[0]).max() for p in strided):.1e}")
print(f"stride one:     largest distance {max(np.abs(p - parted[0]).max() for p in parted):.2f}")

# %% alt="Paths of two coordinates of the end-to-end filter: with strides one path, at stride one several that part"
figure, axes = plt.subplots(1, 2, figsize=(6.4, 3))
for axis, flows, title in (
    (axes[0], strided, "strides (2, 1): one path"),
    (axes[1], parted, "stride one: they part"),
):
    for path in flows:
        axis.plot(path[:, 1], path[:, 2], lw=2, alpha=0.7)
    axis.plot(*flows[0][0, 1:3], "k.")
    axis.set(title=title, xlabel="$v_1$", ylabel="$v_2$")
plt.show()

# %% [markdown]
# The page [riemann](../paper/riemann.md) says which theorem tells when, where the printed one fails (Theorem 13, like layers), and shows all 40 families of Table 1.
