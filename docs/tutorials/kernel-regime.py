# %% [markdown]
# # Is my network in the kernel regime?
#
# A wide network trained by small steps behaves like its linearisation at the start, $f(\theta_0) + J(\theta - \theta_0)$. Then everything
# about training follows from one matrix, the neural tangent kernel $K = JJ^\top$. Is *your* network in this regime? Three numbers tell.

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
# - **How far is the trained network from its linearisation?** `nm.gradient_flow` trains the network; `nm.kernel_flow` predicts the linearised network
#   at the same time from the kernel alone.
# - **How far did the kernel move?** We divide the Frobenius norm of its change by its own.
# - **How curved is the output at the start?** We measure the spectral norm of its Hessian. It falls like $n^{-1/2}$ up to a logarithm (below), and is the cause of the other two.


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


def curvature(width, signs=False):
    """The Hessian's norm, mean over three networks; with `signs` their output weights are ±1."""
    net, norms = nm.MLP((2, width, width, 1), "tanh", scaling="ntk"), []
    for seed in range(3):
        *inner, last = net.init(key=jax.random.key(seed), scheme=nm.init.ntk, dtype="float64")
        last = nm.Layer(np.sign(last.weight), last.bias) if signs else last
        norms.append(nm.tangent.output_hessian_norm(net, (*inner, last), x[:4], rtol=1e-3))
    return np.mean(norms)


widths = (8, 32, 128)
means = [np.mean([regime(width, seed) for seed in range(5)], axis=0) for width in widths]
rows = np.array([[*mean, curvature(width)] for mean, width in zip(means, widths, strict=True)])
print("width   apart from linear   kernel moved   Hessian")
for width, (apart, moved, hessian) in zip(widths, rows, strict=True):
    print(f"{width:5d}   {apart:17.3f}   {moved:12.3f}   {hessian:7.3f}")

# %% [markdown]
# All three fall together. Where the kernel moved by 2 %, the network is as good as linear in its parameters; where it moved by 10 %, one sees the difference of the two functions.

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
# **Why is the Hessian's line flatter than $n^{-1/2}$?** The weights and the bias into unit $i$ of the second hidden layer have a Hessian block of their own. With
# output weights $a_i$, pre-activations $z_i$ and first-layer outputs $h$ it is, exactly,
#
# $$
# \frac{a_i\,\varphi''(z_i)}{\sqrt n}\,uu^\top, \qquad u = (h/\sqrt n, 1),
# $$
#
# so $\Vert H\Vert \ge \max_i |a_i\varphi''(z_i)|\,\Vert u\Vert^2/\sqrt n$. The $a_i$ are Gaussian, and the largest of $n$ Gaussians grows like $\sqrt{2\log n}$: the norm falls like
# $\sqrt{\log n/n}$, not like $n^{-1/2}$. The theorem's $O$ hides this logarithm. If that is the cause, output weights of ±1, which have no largest one, must give $n^{-1/2}$.

# %%
bounded = np.array([curvature(width, signs=True) for width in widths])
logarithm = np.sqrt(np.log(widths) / widths)
print("slope of the Hessian's norm, widths:   8 to 32   32 to 128")
for name, norms in (
    ("Gaussian output weights", rows[:, 2]),
    ("√(log n / n)", logarithm),
    ("output weights ±1", bounded),
    ("n^(-1/2)", np.array(widths) ** -0.5),
):
    slopes = np.diff(np.log(norms)) / np.diff(np.log(widths))
    print(f"{name:36s} {slopes[0]:9.2f} {slopes[1]:11.2f}")

# %% [markdown]
# Between 32 and 128 the control has its slope of −½. The Gaussian line lies near $\sqrt{\log n/n}$, with the scatter of a maximum over three networks: eight networks
# gave −0.39 from 128 to 512, where the logarithm says −0.41. At width 8 both are too narrow for a power law.

# %% [markdown]
# **In which direction does training go first?** The kernel's eigenvectors are learned one after the other, at the rate of their eigenvalues; the alignment says how much of
# the residual lies along the fast ones. It costs one vector–Jacobian product and needs no kernel, so you can watch it in training.

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
