# %% [markdown]
# # Is my network in the kernel regime?
#
# A wide network trained by small steps behaves like its linearisation at the start, $f(\theta_0) + J(\theta - \theta_0)$, and then everything
# about training follows from one matrix, the neural tangent kernel $K = JJ^\top$. Whether *your* network is there is not a matter of taste:
# three numbers answer it.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (24, 2))
y = np.sin(3 * x[:, :1]) * x[:, 1:]
fresh = rng.uniform(-1, 1, (100, 2))
loss, t1 = nm.losses.half_squared_error, 60.0


# %% [markdown]
# **How far the trained network is from its linearisation.** `nm.gradient_flow` trains the network, `nm.kernel_flow` predicts the linearised training
# at the same time from the kernel alone. **How far the kernel moved.** **How curved the output is** at the start: the spectral norm of its Hessian,
# which falls like $n^{-1/2}$ and is the reason for all of it. $\Vert\cdot\Vert$ is the Frobenius norm below.


# %%
def regime(width, seed):
    net = nm.MLP((2, width, width, 1), "tanh", scaling="ntk")
    params = net.init(key=jax.random.key(seed), scheme=nm.init.ntk, dtype="float64")
    end = nm.gradient_flow(
        net, params, x, y, t1=t1, loss=loss, rtol=1e-5, atol=1e-7, saveat=[t1], dense=False
    )
    trained = jax.tree.map(lambda leaf: leaf[-1], end.params)
    linear = nm.kernel_flow(net, params, x, y, loss=loss, other=fresh).at(t1).other
    apart = np.sqrt(np.mean((np.asarray(net(trained, fresh)) - linear) ** 2))
    before, after = nm.ntk(net, params, x), nm.ntk(net, trained, x)
    moved = np.linalg.norm(after - before) / np.linalg.norm(before)
    return apart, moved


def curvature(width):
    net = nm.MLP((2, width, width, 1), "tanh", scaling="ntk")
    params = net.init(key=jax.random.key(0), scheme=nm.init.ntk, dtype="float64")
    return np.mean(nm.tangent.output_hessian_norm(net, params, x[:4], rtol=1e-3))


widths = (8, 32, 128)
means = [np.mean([regime(width, seed) for seed in range(5)], axis=0) for width in widths]
rows = np.array([[*mean, curvature(width)] for mean, width in zip(means, widths, strict=True)])
print("width   apart from linear   kernel moved   Hessian")
for width, (apart, moved, hessian) in zip(widths, rows, strict=True):
    print(f"{width:5d}   {apart:17.3f}   {moved:12.3f}   {hessian:7.3f}")

# %% [markdown]
# All three fall together. A kernel that moved by 2 % belongs to a network that is linear for all that matters here; at 10 % the two functions are told apart by eye.

# %% alt="Distance from the linearisation, change of the kernel and Hessian norm against the width, all falling, beside a line of slope minus one half"
names = ("apart from its linearisation", "kernel moved", "Hessian of the output")
figure, axis = plt.subplots(figsize=(6, 3.6))
for column, name in enumerate(names):
    axis.loglog(widths, rows[:, column] / rows[0, column], "o-", label=name)
axis.loglog(widths, np.sqrt(widths[0] / np.array(widths)), "k:", label="width$^{-1/2}$")
axis.set(xlabel="width", ylabel="relative to width 8")
axis.legend()
plt.show()

# %% [markdown]
# **In which direction does training go first?** The kernel's eigenvectors are learned one after the other, at the rate of their eigenvalues; alignment says how much of
# the residual lies along the fast ones. It costs one vector–Jacobian product, never a kernel, so you can watch it in training.

# %%
net = nm.MLP((2, 128, 128, 1), "tanh", scaling="ntk")
params = net.init(key=jax.random.key(0), scheme=nm.init.ntk, dtype="float64")
spectrum = nm.spectrum(net, params, x)
print(f"alignment {nm.alignment(net, params, x, y, loss=loss):.3f}")
print(
    f"largest eigenvalue {spectrum.eigenvalues[0]:.2f}, effective rank {spectrum.effective_rank:.2f} of {len(x)}"
)
print(f"largest stable learning rate {nm.largest_stable_lr(net, params, x, y, loss=loss):.3f}")

# %% [markdown]
# Read on: [Infinite width](../infinite-width.md), and what the paper on the kernel regime gets right and wrong: [teleport](../paper/teleport.md).
