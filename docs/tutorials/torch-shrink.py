# %% [markdown]
# # Inspect and shrink a PyTorch network
#
# You hold a trained PyTorch module and some data. How many of the module's parameters matter on the data? Which neurons do nothing? Is there a smaller network with *exactly* the same outputs?
# This tutorial needs PyTorch (`pip install 'neuromanifold[torch]'`); `make test-torch` runs it.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import neuromanifold as nm

torch.manual_seed(0)
module = torch.nn.Sequential(
    *(torch.nn.Linear(1, 16), torch.nn.ReLU()),
    *(torch.nn.Linear(16, 16), torch.nn.ReLU()),
    torch.nn.Linear(16, 1),
)
x = torch.linspace(-1, 1, 100)[:, None]
y = torch.abs(torch.sin(3 * x))
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=1e-2)
for _ in range(400):
    optimizer.zero_grad()
    error = torch.nn.functional.mse_loss(module(x), y)
    error.backward()
    optimizer.step()
print(f"training loss {error.item():.4f}")

# %% [markdown]
# `nm.from_torch` exports the module and evaluates its graph in JAX. Before it returns the function, it compares outputs and a directional derivative with the module's own, in float64.

# %%
f, params = nm.from_torch(module.eval(), example=x)
print(f.evidence)
samples = x.numpy()
report = nm.inspect(f, params, samples)
print(*report.verdict, sep="\n")

# %% [markdown]
# **The smaller network.** `nm.reduce_width` removes neurons that are dead on the sample, merges proportional ones, and folds those that are linear there. `.to_torch` makes a PyTorch module
# of the result; save its `state_dict` as you save any other.

# %%
smaller = nm.reduce_width(f, params, samples)
small_module = smaller.to_torch(module, example=x)
with torch.no_grad():
    moved = (small_module(x) - module(x)).abs().max().item()
print(sum(p.numel() for p in small_module.parameters()), "parameters; in float32 too they agree:")
print("the outputs moved by less than 1e-6" if moved < 1e-6 else f"the outputs moved by {moved}")

# %% [markdown]
# **From a file.** The weights of a perceptron can be saved and read without the code that made them; no code in the file is run. Then the outputs of both networks are compared in exact arithmetic.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.pt"
    torch.save(module.state_dict(), path)
    net, weights = nm.load(path, activation="relu")
reduction = nm.reduce_width(net, weights, samples)
print(
    f"{net.widths} → {reduction.net.widths}: {net.n_params} → {reduction.net.n_params} parameters"
)
print(reduction)
assert reduction.deviation < 1e-9

# %% [markdown]
# The same from a shell: `neuromanifold reduce net.pt samples.npy --activation relu --out smaller.safetensors`. Neurons that are linear on the sample are kept without their ReLU (`nm.Mixed`). Outside
# the linear regions that the sample meets, the two networks may differ.

# %% alt="The function of the trained network and that of the reduced one, indistinguishable; below, their difference, of the order of 1e-16"
small = np.asarray(reduction.net(reduction.params, samples.astype("float64")))
large = np.asarray(net(weights, samples.astype("float64")))
figure, (above, below) = plt.subplots(2, 1, figsize=(6, 4.2), sharex=True, height_ratios=(3, 1))
above.plot(samples, large, lw=4, alpha=0.4, label=f"{net.n_params} parameters")
above.plot(samples, small, lw=1, label=f"{reduction.net.n_params} parameters")
above.legend()
below.plot(samples, small - large)
below.set(xlabel="x", ylabel="difference")
plt.show()
