# %% [markdown]
# # Conserved quantities and invariant manifolds
#
# Gradient flow cannot go everywhere. Each continuous symmetry of the network keeps a number constant along the flow, whatever the data and the loss; and
# neurons that are equal stay equal. We watch both, and ask what gradient *descent*, with its finite steps, does instead.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

net = nm.MLP((1, 4, 1), "relu")
params = net.init(key=jax.random.key(0), dtype="float64")
x = np.linspace(-1, 1, 20)[:, None]
y = np.abs(x)
print(nm.conserved_quantities(net, params))

# %% [markdown]
# For a ReLU neuron with incoming weights $w$, bias $b$ and outgoing weights $v$ the number is $\Vert v\Vert^2 - \Vert w\Vert^2 - b^2$: multiplying $w, b$ by $c > 0$ and dividing $v$ by $c$
# changes nothing, and the generator of that motion is orthogonal to every gradient.

# %%
flow = nm.gradient_flow(net, params, x, y, t1=10.0, saveat=np.linspace(0, 10, 41))
balance = np.array(
    [
        nm.conserved_quantities(net, jax.tree.map(lambda leaf, i=i: leaf[i], flow.params)).values
        for i in range(41)
    ]
)
drift = np.abs(balance - balance[0]).max()
print(f"largest change of a balance along the flow: {drift:.1e}")
assert drift < 1e-8

# %% [markdown]
# A step of gradient descent with rate $\eta$ changes such a quadratic $Q$ by exactly $\eta^2 Q(\nabla L)$: to first order in time it vanishes like $\eta$.

# %%
gradient = jax.jit(jax.grad(lambda p: nm.losses.mse(net(p, x), y)))


def descended(lr):
    with jax.enable_x64(True):
        p = params
        for _ in range(round(2 / lr)):
            p = jax.tree.map(lambda a, g: a - lr * g, p, gradient(p))
        return np.abs(nm.conserved_quantities(net, p).values - balance[0]).max()


rates = (0.1, 0.05, 0.025, 0.0125)
drifts = [descended(lr) for lr in rates]
for lr, value in zip(rates, drifts, strict=True):
    print(f"lr {lr:6.4f}: drift {value:.1e}")

# %% alt="Left: weights of four neurons move along hyperbolas on which the balance is constant. Right: the drift of gradient descent is proportional to the learning rate"
figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.2))
incoming = np.sqrt(flow.params[0].weight[..., 0] ** 2 + flow.params[0].bias ** 2)
outgoing = np.abs(flow.params[1].weight[:, 0])
for neuron in range(4):
    left.plot(incoming[:, neuron], outgoing[:, neuron], "-", lw=2)
    left.plot(incoming[0, neuron], outgoing[0, neuron], "k.")
    span = np.linspace(0, 2.5, 200)
    height = span**2 + balance[0, neuron]
    left.plot(span, np.sqrt(np.where(height > 0, height, np.nan)), ":", color="0.6", zorder=0)
left.set(
    xlabel="incoming norm",
    ylabel="outgoing norm",
    title="each neuron on its hyperbola",
    ylim=(0, 2.5),
)
right.loglog(rates, drifts, "o-")
right.set(
    xlabel="learning rate", ylabel="drift", title="gradient descent leaves it", ylim=(0.01, 1)
)
right.set_xticks(rates, [f"{lr:g}" for lr in rates], minor=False, rotation=45)
right.minorticks_off()
plt.show()

# %% [markdown]
# **Manifolds that training never leaves.** With tanh, exchanging neurons and flipping their signs are symmetries, and whatever they fix stays fixed.
# `nm.invariant_leaf` finds the smallest such set a point is known to lie on.

# %%
odd = nm.MLP((1, 3, 1), "tanh", bias=False)
start = (nm.Layer(np.array([[1.0], [-1.0], [0.5]])), nm.Layer(np.array([[2.0, -2.0, 0.3]])))
leaf = nm.invariant_leaf(odd, start)
print(leaf)
end = nm.gradient_flow(odd, start, x, np.sin(3 * x), t1=20.0, saveat=[20.0])
last = jax.tree.map(lambda a: np.asarray(a[-1]), end.params)
print(last[0].weight.ravel().round(6), last[1].weight.ravel().round(6))
print(f"distance from the leaf after training: {leaf.distance(last):.1e}")

# %% [markdown]
# Neuron 1 is the negative of neuron 0, and remains so. How many dimensions *can* the flow explore? The Lie closure of all gradient fields tells, with a certificate.

# %%
closure = nm.lie_closure(odd, start, key=jax.random.key(0))
print(closure)

# %% [markdown]
# Read on: [Orbits](../orbits.md), [Symmetry](../symmetry.md), and the paper: [invariant](../paper/invariant.md).
