# %% [markdown]
# # Scale to a cluster
#
# A kernel of 60,000 samples has 3.6 billion entries. `nm.gram` keeps it in tiles on a disk, computes them in this process, in several, or on a Dask cluster, goes on after a kill,
# and reads answers from the disk. This tutorial uses a small kernel in this process; for a large one the calls are the same.

# %%
import shutil
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

net = nm.MLP((8, 32, 1), "relu")
params = net.init(key=jax.random.key(0))
rng = np.random.default_rng(0)
x = rng.standard_normal((600, 8)).astype("float32")
y = np.sin(x[:, :1]) + 0.1 * x[:, 1:2] ** 2
store = Path(tempfile.mkdtemp()) / "kernel"

# %%
kernel = nm.gram(net, params, x, store=store, tile=150)
held = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
print(
    f"{held / 1e6:.2f} MB on the disk for {600 * 600 * 4 / 1e6:.2f} MB of kernel: tiles on and above the diagonal"
)

# %% [markdown]
# `workers=4` computes strips in four processes, `scheduler="tcp://host:8786"` on a cluster of any size (`dask scheduler`, then `dask worker tcp://host:8786` on every machine; they need
# a common folder). Suppose a tile was lost. The same call notices it and computes that tile only:

# %%
tiles = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size > 10_000)
tiles[0].unlink()
again = nm.gram(net, params, x, store=store, tile=150)
print(f"{len(tiles)} tiles, one deleted; now there are {sum(path.exists() for path in tiles)}")

# %% [markdown]
# Eigenvalues come from blocked Lanczos, solutions of linear systems from conjugate gradients. Each pass reads every tile once.

# %%
top = again.spectrum(12).eigenvalues
direct = nm.spectrum(net, params, x).eigenvalues[:12]
print(
    f"largest difference from the dense computation, relative: {np.abs(top - direct).max() / direct[0]:.0e}"
)
fresh = rng.standard_normal((200, 8)).astype("float32")
truth = np.sin(fresh[:, :1]) + 0.1 * fresh[:, 1:2] ** 2
predicted = again.regression(y, fresh, ridge=1e-2)
print(
    f"kernel regression, r² on fresh samples: {1 - np.mean((predicted - truth) ** 2) / truth.var():.3f}"
)

# %% alt="Left: the twelve largest eigenvalues from the disk and from the dense computation agree. Right: predictions against the truth"
figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3))
left.semilogy(direct, "o", mfc="none", label="dense")
left.semilogy(top, ".", label="from the disk")
left.set(xlabel="index", ylabel="eigenvalue")
left.legend()
right.plot(truth, predicted, ".", ms=3)
right.set(xlabel="truth", ylabel="predicted")
shutil.rmtree(store.parent)
plt.show()

# %% [markdown]
# Trainings resume from `checkpoint=`. Studies run as `neuromanifold reproduce KEY --workers 4` or `--scheduler tcp://…`. Measurements, with kills: [Scale and reliability](../reliability.md).
