# %% [markdown]
# # Infinite width and Gaussian processes
#
# At infinite width a network with random weights is a Gaussian process, and so is an infinite ensemble of such networks at every time of training.
# Both have closed forms: `nm.nngp` and `nm.infinite_ntk` give the kernels, `nm.infinite.gp_posterior` and `nm.infinite.ensemble_flow` the predictions.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(-2, 2, (9, 1)), axis=0)
y = np.sin(2 * x) + 0.1 * rng.standard_normal(x.shape)
line = np.linspace(-3, 3, 121)[:, None]
net = nm.MLP((1, 1, 1, 1), "relu")  # the hidden widths do not matter here

# %% [markdown]
# **Bayes.** This is the posterior of the infinitely wide network, with noise of standard deviation 0.1.
# **Gradient flow.** This is what an infinite ensemble of trained networks predicts, at time 1 and in the limit.

# %%
options = {"weight_std": 2.0, "bias_std": 1.0}
posterior = nm.infinite.gp_posterior(net, x, y, line, noise_std=0.1, **options)
flow = nm.infinite.ensemble_flow(
    net, x, y, loss=nm.losses.half_squared_error, other=line, ridge=0.01, **options
)
bands = {"Bayes": (posterior.mean[:, 0], posterior.standard_deviation)}
for name, at in (("training, t = 1", flow.at(1.0)), ("training, t → ∞", flow.limit())):
    mean, covariance = at.other
    bands[name] = (mean[:, 0], np.sqrt(np.diag(covariance)))

# %% alt="Three panels over the same nine samples: the Bayesian posterior, the trained ensemble at time one, still flat, and in the limit, close to the data"
figure, axes = plt.subplots(1, 3, figsize=(6.6, 2.8), sharey=True)
for axis, (name, (mean, deviation)) in zip(axes, bands.items(), strict=True):
    axis.fill_between(line[:, 0], mean - 2 * deviation, mean + 2 * deviation, alpha=0.25)
    axis.plot(line[:, 0], mean)
    axis.plot(x[:, 0], y[:, 0], "k.")
    axis.set(title=name, xlabel="x", ylim=(-5, 5))
plt.show()

# %% [markdown]
# **Which standard deviations suit the data?** The log marginal likelihood is differentiable, so gradient ascent finds them.

# %%
with jax.enable_x64(True):

    def evidence(log_std):
        weight, bias = jax.numpy.exp(log_std)
        return nm.infinite.log_marginal_likelihood(
            net, x, y, noise_std=0.1, weight_std=weight, bias_std=bias
        )

    climb, at = jax.jit(jax.value_and_grad(evidence)), jax.numpy.log(jax.numpy.array([2.0, 1.0]))
    first = float(climb(at)[0])
    for _ in range(100):
        at = at + 0.01 * climb(at)[1]
    print(f"log evidence {first:.2f} → {float(climb(at)[0]):.2f}")
    print("weight and bias deviation", np.exp(np.asarray(at)).round(2))

# %% [markdown]
# **How wide is infinite?** One network of width $n$ is off by $O(n^{-1/2})$.

# %%
samples = rng.standard_normal((6, 1))
limit = nm.infinite_ntk(net, samples, weight_std=1.0, bias_std=1.0)
for width in (16, 128, 1024):
    finite = nm.MLP((1, width, width, 1), "relu", scaling="ntk")
    drawn = [
        nm.ntk(finite, finite.init(key=jax.random.key(seed), scheme=nm.init.ntk), samples)
        for seed in range(4)
    ]
    off = np.mean(
        [np.linalg.norm(np.asarray(kernel) - limit) for kernel in drawn]
    ) / np.linalg.norm(limit)
    print(f"width {width:4d}: the kernel is off by {off:.0%}")

# %% [markdown]
# Convolutions, residual sums, attention, and networks you wrote as functions: [Infinite width](../infinite-width.md).
