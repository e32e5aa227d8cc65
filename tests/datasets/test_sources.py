"""Real data: found in the named folder, then the cache, then OpenML; one clear sentence where
there is no network.
"""

import gzip
import hashlib
import io
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from neuromanifold import data
from neuromanifold.data import energy, fashion


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data, without network."""

    def offline(**options):
        raise URLError("Name or service not known")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: offline())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NEUROMANIFOLD_DATA", raising=False)
    monkeypatch.setattr(fashion, "DEBIAN", tmp_path / "debian")
    return tmp_path


def buildings(rng: np.random.Generator) -> np.ndarray:
    """A stand-in for the energy data: same shape, other numbers."""
    return np.hstack([rng.uniform(1, 900, (768, 8)), rng.uniform(6, 48, (768, 2))]).round(2)


def write_buildings(path: Path, table: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = (energy.FEATURES + energy.TARGETS)[: table.shape[1]]
    np.savetxt(path, table, fmt="%.17g", delimiter=",", header=",".join(names), comments="")


def test_energy_is_read_from_the_named_folder_and_standardised(nowhere, rng, monkeypatch):
    table = buildings(rng)
    write_buildings(nowhere / "mine" / "energy_efficiency.csv", table)
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(nowhere / "mine"))
    d = data.load("energy")
    assert d.x.shape == (768, 8)
    assert d.targets == ("heating_load", "cooling_load")
    assert np.array_equal(d.y, table[:, 8:])
    np.testing.assert_allclose(d.x.mean(0), 0, rtol=0, atol=768 * np.finfo(float).eps * 10)
    np.testing.assert_allclose((d.x**2).mean(0), 1, rtol=768 * np.finfo(float).eps)
    np.testing.assert_allclose(np.corrcoef(d.x[:, 3], table[:, 3])[0, 1], 1, rtol=1e-12)
    assert np.array_equal(d.target("cooling_load").y, table[:, [9]])


def test_the_named_folder_comes_before_the_cache(nowhere, rng, monkeypatch):
    first, second = buildings(rng), buildings(rng)
    write_buildings(nowhere / "cache" / "neuromanifold" / "energy_efficiency.csv", second)
    assert np.array_equal(data.load("energy").y, second[:, 8:])
    write_buildings(nowhere / "mine" / "energy_efficiency.csv", first)
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(nowhere / "mine"))
    assert np.array_equal(data.load("energy").y, first[:, 8:])


def test_energy_comes_from_openml_once_and_then_from_the_cache(nowhere, rng, monkeypatch):
    import pandas

    table, calls = buildings(rng), []

    def openml(**options):
        calls.append(options)
        frame = pandas.DataFrame(table, columns=[*energy.FEATURES, *energy.TARGETS])
        shuffled = (
            frame[sorted(frame.columns)]
            .astype({"orientation": str})
            .astype({"orientation": "category"})
        )
        return SimpleNamespace(frame=shuffled)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", openml)
    with pytest.raises(
        ValueError,
        match=r"OpenML 44960 gives another table than UCI's \(its checksum differs\); connect",
    ):
        data.fetch("energy")
    calls.clear()
    monkeypatch.setattr(energy, "SHA256", energy.table_hash(table[rng.permutation(768)]))
    assert [row["present"] for row in data.catalogue() if row["name"] == "energy"] == [""]
    assert data.fetch("energy") == nowhere / "cache" / "neuromanifold" / "energy_efficiency.csv"
    d = data.load("energy")
    assert np.array_equal(d.y, table[:, 8:])
    np.testing.assert_allclose(
        d.x, (table[:, :8] - table[:, :8].mean(0)) / table[:, :8].std(0), rtol=1e-10, atol=1e-12
    )
    assert [call["data_id"] for call in calls] == [44960]


def test_without_network_one_sentence_says_what_to_do():
    with pytest.raises(
        FileNotFoundError,
        match=r"'energy' is not on this machine .*Name or service not known.*; connect .* NEUROMANIFOLD_DATA\.$",
    ):
        data.load("energy")
    with pytest.raises(
        FileNotFoundError,
        match=r"'fashion_mnist' .* Debian's package dataset-fashion-mnist.* NEUROMANIFOLD_DATA\.$",
    ):
        data.load("fashion_mnist_test")


def test_a_folder_that_does_not_exist_is_an_error_not_a_download(nowhere, monkeypatch):
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(nowhere / "absent"))
    with pytest.raises(
        FileNotFoundError, match=r"`NEUROMANIFOLD_DATA` is .*absent.*; create it, or unset"
    ):
        data.load("energy")


def test_an_energy_file_of_another_shape_is_refused(nowhere, rng, monkeypatch):
    write_buildings(nowhere / "mine" / "energy_efficiency.csv", buildings(rng)[:, :9])
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(nowhere / "mine"))
    with pytest.raises(ValueError, match=r"shape \(768, 9\); needed are 768 rows"):
        data.load("energy")


def small_fashion(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Seven training and three test images."""
    monkeypatch.setattr(fashion, "PARTS", {"train": 7, "t10k": 3})
    return rng.integers(0, 256, (10, 28, 28), np.uint8), rng.integers(0, 10, 10).astype(np.uint8)


@pytest.mark.parametrize(
    "place", ["debian", "mine", "mine/fashion-mnist", "cache/neuromanifold/fashion-mnist"]
)
def test_fashion_is_found_in_every_place(place, nowhere, rng, monkeypatch):
    images, labels = small_fashion(monkeypatch, rng)
    (nowhere / "mine").mkdir()
    monkeypatch.setenv("NEUROMANIFOLD_DATA", str(nowhere / "mine"))
    for part, rows in (("train", slice(0, 7)), ("t10k", slice(7, 10))):
        fashion.write_idx(nowhere / place / f"{part}-images-idx3-ubyte.gz", images[rows])
        fashion.write_idx(nowhere / place / f"{part}-labels-idx1-ubyte.gz", labels[rows])
    train, test = data.load("fashion_mnist"), data.load("fashion_mnist_test")
    assert np.array_equal(train.x * 255, images[:7].reshape(7, 784)) and train.x.max() <= 1
    assert np.array_equal(test.y.argmax(1), labels[7:]) and np.array_equal(
        test.y.sum(1), np.ones(3)
    )
    assert str(nowhere / place) in train.source


def test_fashion_is_downloaded_once_and_only_the_authors_files(nowhere, rng, monkeypatch):
    images, labels = small_fashion(monkeypatch, rng)
    files = {}
    for part, rows in (("train", slice(0, 7)), ("t10k", slice(7, 10))):
        for kind, a in (("images-idx3", images), ("labels-idx1", labels)):
            path = fashion.write_idx(nowhere / "there" / f"{part}-{kind}-ubyte.gz", a[rows])
            files[path.name] = path.read_bytes()
    monkeypatch.setattr(
        urllib.request,
        "urlopen",
        lambda address, timeout: io.BytesIO(files[address.rpartition("/")[2]]),
    )
    with pytest.raises(
        ValueError,
        match=r"train-images-idx3-ubyte.gz gives another file than the authors'.*; connect",
    ):
        data.fetch("fashion_mnist")
    assert not list((nowhere / "cache").rglob("*.gz"))
    monkeypatch.setattr(
        fashion, "GIT_BLOBS", {name: git_name(content) for name, content in files.items()}
    )
    assert data.fetch("fashion_mnist") == nowhere / "cache" / "neuromanifold" / "fashion-mnist"
    monkeypatch.setattr(urllib.request, "urlopen", None)
    assert np.array_equal(data.load("fashion_mnist").x * 255, images[:7].reshape(7, 784))
    assert np.array_equal(data.load("fashion_mnist_test").y.argmax(1), labels[7:])


def git_name(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def test_a_bomb_in_an_idx_file_is_not_unpacked(nowhere, rng, monkeypatch):
    images, labels = small_fashion(monkeypatch, rng)
    for name, a in (("images-idx3", images), ("labels-idx1", labels)):
        fashion.write_idx(nowhere / "debian" / f"train-{name}-ubyte.gz", a[:7])
        fashion.write_idx(nowhere / "debian" / f"t10k-{name}-ubyte.gz", a[7:])
    (nowhere / "debian" / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(bytes(60_000_000))
    )
    with pytest.raises(
        ValueError, match=r"cannot be read \(it holds more than 47040016 bytes\); it is damaged"
    ):
        data.load("fashion_mnist")


@pytest.mark.parametrize(
    "damage",
    [b"", b"not gzip", gzip.compress(b"\0\0\x08"), gzip.compress(b"\0\0\x08\x01\0\0\0\x09abc")],
    ids=["empty", "not gzip", "no sizes", "too short"],  # compressed bytes hold the time
)
def test_a_damaged_idx_file_is_refused(damage, nowhere, rng, monkeypatch):
    images, labels = small_fashion(monkeypatch, rng)
    for name, a in (("images-idx3", images), ("labels-idx1", labels)):
        fashion.write_idx(nowhere / "debian" / f"train-{name}-ubyte.gz", a[:7])
        fashion.write_idx(nowhere / "debian" / f"t10k-{name}-ubyte.gz", a[7:])
    (nowhere / "debian" / "train-images-idx3-ubyte.gz").write_bytes(damage)
    with pytest.raises(
        ValueError,
        match=r"train-images-idx3-ubyte.gz cannot be read .* it is damaged: remove it, then",
    ):
        data.load("fashion_mnist")


def test_bundled_data_have_the_shapes_and_scales_they_promise():
    digits, diabetes = data.load("digits"), data.load("diabetes")
    assert digits.x.shape == (1797, 64) and digits.y.shape == (1797, 10)
    assert (
        digits.x.min() == 0
        and digits.x.max() == 1
        and np.array_equal(digits.y.sum(1), np.ones(1797))
    )
    assert diabetes.x.shape == (442, 10) and diabetes.y.shape == (442, 1)
    np.testing.assert_allclose((diabetes.x**2).sum(0), 1, rtol=1e-12)
