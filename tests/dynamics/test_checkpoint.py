"""An interrupted training resumes and ends, bit for bit, where an uninterrupted one ends."""

import shutil
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

import cast
from dynamics import plain
from neuromanifold.dynamics import adam_l2, checkpoint, loss_probe, train, training
from neuromanifold.dynamics.checkpoint import Course
from neuromanifold.models import losses
from neuromanifold.runtime.checksummed import read_archive, write_archive


class Interrupted(Exception):
    """Stands for Ctrl-C, a full disk, a probe that fails."""


class Watch:
    """A host probe of the largest weight that can be told to fail, or to copy a file, at one of
    its calls.
    """

    __name__ = "watch"
    host = True

    def __init__(self):
        self.calls, self.at, self.act = 0, -1, None

    def __call__(self, f, params, x, y):
        self.calls += 1
        if self.calls == self.at:
            self.act()
        return abs(params[0].weight).max()


def fail():
    raise Interrupted


@pytest.fixture
def case(rng):
    """Three runs, their data; one program for the whole file."""
    drawn = [cast.OUTPUTS.draw(rng) for _ in range(3)]
    params = jax.tree.map(lambda *leaves: np.float32(np.stack(leaves)), *drawn)
    x, y = rng.normal(size=(10, 2)), rng.normal(size=(10, 3))

    def run(watch, key=7, **options):
        given = {"epochs": 12, "batch_size": 4, "optimizer": adam_l2(0.05, 0.01), "every": 2}
        probes = [loss_probe(losses.mse), watch]
        return train(
            cast.OUTPUTS.model,
            params,
            x,
            y,
            key=jax.random.key(key),
            probes=probes,
            **{**given, **options},
        )

    return run


def same(a, b) -> bool:
    return np.array_equal(plain.vector(a.params), plain.vector(b.params)) and a.history.identical(
        b.history
    )


def test_a_training_that_fails_resumes_where_it_was(case, tmp_path: Path):
    path, watch = tmp_path / "deep" / "run.ckpt", Watch()
    whole = case(Watch())
    watch.at, watch.act = 3 * 3 + 2, fail  # the second run's fourth record, at epoch 6
    with pytest.raises(Interrupted):
        case(watch, checkpoint=path)
    assert path.exists() and len(list(path.parent.iterdir())) == 1
    calls = watch.calls
    done = case(watch, checkpoint=path)
    assert same(done, whole)
    assert watch.calls - calls == 3 * 4  # epochs 6, 8, 10, 12: nothing finished is done again


def test_a_training_that_is_killed_resumes_from_what_was_written(case, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(training, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(training, "SHARE", 0.0)
    path, copy, watch = tmp_path / "run.npz", tmp_path / "copy.npz", Watch()
    watch.at, watch.act = 3 * 4 + 1, lambda: shutil.copy(path, copy)
    whole = case(watch, checkpoint=path)
    watch.calls = 0
    watch.at = -1
    assert same(case(watch, checkpoint=copy), whole)
    assert 0 < watch.calls < 3 * 4


def test_a_finished_training_is_read_back_and_may_be_continued(case, tmp_path: Path):
    path, watch = tmp_path / "run.npz", Watch()
    half = case(watch, checkpoint=path, epochs=5)
    assert half.history.epoch.values.tolist() == [0, 2, 4, 5]
    watch.calls = 0
    assert same(case(watch, checkpoint=path, epochs=5), half) and watch.calls == 0
    longer = case(watch, checkpoint=path)
    assert same(longer, case(Watch())) and longer.history.epoch.values.tolist() == [
        0,
        2,
        4,
        6,
        8,
        10,
        12,
    ]
    with pytest.raises(
        ValueError, match=r"`epochs` is 5 but `checkpoint` .* has done 12; pass at least as many"
    ):
        case(watch, checkpoint=path, epochs=5)


def test_nothing_is_written_before_anything_is_finished(case, tmp_path: Path):
    watch = Watch()
    watch.at, watch.act = 1, fail
    with pytest.raises(Interrupted):
        case(watch, checkpoint=tmp_path / "run.npz")
    assert list(tmp_path.iterdir()) == []


def test_another_training_s_checkpoint_is_refused(case, tmp_path: Path):
    path = tmp_path / "run.npz"
    case(Watch(), checkpoint=path, epochs=0)
    with pytest.raises(
        ValueError,
        match=r"belongs to another training \(key: .* 0 7 there, .* 0 8 here\); delete it",
    ):
        case(Watch(), key=8, checkpoint=path)
    with pytest.raises(
        ValueError,
        match=r"\(batch_size: 4 there, None here; optimizer: .*0\.01\) there, .*0\.02\) here; training step: ",
    ):
        case(Watch(), batch_size=None, optimizer=adam_l2(0.05, 0.02), checkpoint=path)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 torn", b"not a checkpoint"])
def test_a_damaged_checkpoint_is_refused(damage: bytes, case, tmp_path: Path):
    (tmp_path / "run.npz").write_bytes(damage)
    with pytest.raises(
        ValueError,
        match=r"`checkpoint` .*run.npz has no checksum at its end.*delete it, or name another",
    ):
        case(Watch(), checkpoint=tmp_path / "run.npz")
    np.savez(tmp_path / "run.npz", header=np.ones(3))
    with pytest.raises(ValueError, match=r"`checkpoint` .*run.npz has no checksum at its end"):
        case(Watch(), checkpoint=tmp_path / "run.npz")


def test_a_flipped_bit_anywhere_is_noticed(case, tmp_path: Path, rng, draws, tally):
    case(Watch(), checkpoint=tmp_path / "run.npz", epochs=1)
    whole = (tmp_path / "run.npz").read_bytes()
    for bit in rng.integers(0, 8 * len(whole), draws(40)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "flipped.npz").write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"is damaged: its checksum|has no checksum at its end"
        ):
            checkpoint.find(tmp_path / "flipped.npz")
    tally(draws(40), of=draws(40), what="flipped bits noticed")


@pytest.mark.parametrize(
    "change",
    [
        {"plan": {"chunk": 10**12, "probed": 1, "pool": 1}},
        {"plan": {"chunk": -1, "probed": 1, "pool": 1}},
        {"plan": []},
        {"epoch": "many"},
        {"epoch": 1e300},
        {"recorded": [0, 1, 99]},
        {"identity": 3},
        {"first": None},
    ],
    ids=str,
)
def test_a_checkpoint_with_a_valid_checksum_may_still_be_hostile(change, case, tmp_path: Path):
    path = tmp_path / "run.npz"
    case(Watch(), checkpoint=path, epochs=1)
    header, arrays = read_archive(path, "")
    write_archive(path, header | change, arrays)
    with pytest.raises(ValueError, match=r"`checkpoint` .*run.npz.*delete it"):
        case(Watch(), checkpoint=path, epochs=1)


def test_every_dtype_survives_the_file(tmp_path: Path):
    learners = [
        np.arange(3).astype(kind)
        for kind in (ml_dtypes.bfloat16, np.float16, np.float64, np.int32, bool)
    ]
    course = Course(
        4,
        (*learners, np.array(5, np.uint32)),
        {0: {"a b": np.ones((2, 3))}, 4: {"a b": np.zeros((2, 3))}},
    )
    header = {
        "identity": {"key": "1"},
        "described": {},
        "plan": {"chunk": 3, "probed": 3, "pool": 2},
    }
    checkpoint.write(tmp_path / "c", header, course)
    found = checkpoint.find(tmp_path / "c")
    assert found is not None and found.identity == {"key": "1"} and found.plan["pool"] == 2
    read = checkpoint.course(found, course.learners)
    assert read.epoch == 4 and list(read.records) == [0, 4]
    for a, b in zip(read.learners, course.learners, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert np.array_equal(read.records[0]["a b"], np.ones((2, 3)))
