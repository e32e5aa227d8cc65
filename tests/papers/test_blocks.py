"""Blocks of a study: computed once, kept apart by scale, refused when a bit has changed."""

import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuromanifold_papers import blocks as room
from neuromanifold_papers.blocks import NOT_MEASURED, Block, run_blocks
from neuromanifold_papers.output import Claim, read_data, read_record, save_data, write_record


def block(
    calls: list[str], name: str, after: tuple[str, ...] = (), verdict: bool | str = True
) -> Block:
    def work(out: Path, scale: str, progress: bool) -> list[Claim]:
        calls.append(name)
        return [Claim(name, f"{name} at {scale}", {1: 0.5}, verdict)]

    return Block(name, work, after)


def test_what_is_done_is_not_done_again_and_nothing_is_dropped(tmp_path: Path):
    calls: list[str] = []
    study = [
        block(calls, "c", ("a", "b")),
        block(calls, "a"),
        block(calls, "b", ("a",)),
        block(calls, "d"),
    ]
    run = partial(run_blocks, "riemann", study, tmp_path, "small")
    first = run(only=["b"])
    assert calls == ["a", "b"] and [c["figure"] for c in first["claims"]] == ["a", "b"]
    whole = run()
    assert calls == ["a", "b", "c", "d"] and [c["figure"] for c in whole["claims"]] == [
        "c",
        "a",
        "b",
        "d",
    ]
    assert run(only=["a"]) == whole, "one part alone keeps the claims of the others"
    assert json.loads((tmp_path / "summary.json").read_text()) == whole and len(calls) == 4


def test_an_interrupted_study_keeps_what_was_finished(tmp_path: Path):
    calls: list[str] = []

    def stop(out: Path, scale: str, progress: bool) -> list[Claim]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_blocks("riemann", [block(calls, "a"), Block("b", stop)], tmp_path, "small")
    assert [c["figure"] for c in json.loads((tmp_path / "summary.json").read_text())["claims"]] == [
        "a"
    ]
    run_blocks("riemann", [block(calls, "a"), block(calls, "b")], tmp_path, "small")
    assert calls == ["a", "b"]


def test_what_was_not_measured_is_tried_again(tmp_path: Path):
    calls: list[str] = []
    run_blocks("riemann", [block(calls, "a", verdict=NOT_MEASURED)], tmp_path, "small")
    summary = run_blocks("riemann", [block(calls, "a")], tmp_path, "small")
    assert calls == ["a", "a"] and summary["claims"][0]["borne_out"] is True


@pytest.mark.parametrize(
    "paper, scale, told",
    [
        ("riemann", "paper", "scale 'small' there and 'paper' here"),
        ("teleport", "small", "paper 'riemann' there"),
    ],
)
def test_other_results_are_not_replaced(paper: str, scale: str, told: str, tmp_path: Path):
    run_blocks("riemann", [block([], "a")], tmp_path, "small")
    with pytest.raises(
        ValueError,
        match=rf"`out` .* holds other results \(.*{told}.*\); name another folder, or delete it",
    ):
        run_blocks(paper, [block([], "a")], tmp_path, scale)


def test_other_versions_and_folders_that_cannot_be_are_told_first(tmp_path: Path, monkeypatch):
    calls: list[str] = []
    run_blocks("riemann", [block(calls, "a")], tmp_path / "x", "small")
    monkeypatch.setattr(room, "version", lambda name: "9.9")
    with pytest.raises(ValueError, match=r"neuromanifold '.*' there and '9.9' here"):
        run_blocks("riemann", [block(calls, "b")], tmp_path / "x", "small")
    monkeypatch.undo()
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_cpu_enable_fast_math=true")
    with pytest.raises(
        ValueError, match=r"compiler flags '.*' there and '.*fast_math=true.*' here"
    ):
        run_blocks("riemann", [block(calls, "b")], tmp_path / "x", "small")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "summary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds a summary of an earlier version"):
        run_blocks("riemann", [block(calls, "b")], tmp_path / "old", "small")
    with pytest.raises(OSError, match=r"`out` cannot be written into"):
        run_blocks("riemann", [block(calls, "b")], tmp_path / "old" / "summary.json", "small")
    assert calls == ["a"]


def test_a_flipped_bit_of_data_is_noticed_or_harmless(tmp_path: Path, rng, draws, tally):
    """In the text of a record a bit may change a space; in data every bit counts."""
    data = xr.Dataset(
        {"a": (("x", "y"), rng.normal(size=(5, 3)))}, {"x": list("abcde")}, {"setup": "tiny"}
    )
    path = save_data(data, tmp_path, "data")
    record = write_record(tmp_path / "record.json", {"claims": [{"measured": 0.25}], "block": "a"})
    assert read_data(path).identical(data)
    with xr.open_dataset(path, engine="h5netcdf") as plain:
        assert plain.identical(data), "other programs read it as before"
    refused = 0
    for file, read, same in (
        (path, read_data, lambda a: a.identical(data)),
        (record, read_record, read_record(record).__eq__),
    ):
        whole = file.read_bytes()
        for bit in rng.integers(0, 8 * len(whole), draws(60)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            try:
                assert same(read(file)) is True
            except ValueError as error:
                assert "; delete it, or name another folder." in str(error)
                refused += 1
        file.write_bytes(whole)
    tally(refused, of=draws(120), what="flipped bits refused, the others harmless")


def test_data_that_claim_more_than_they_hold_are_refused(tmp_path: Path):
    big = xr.Dataset({"a": ("x", np.zeros(10**6))})
    from neuromanifold.runtime.checksummed import write_checksummed

    path = write_checksummed(
        tmp_path / "a.nc",
        lambda file: big.to_netcdf(
            file, engine="h5netcdf", encoding={"a": {"zlib": True, "complevel": 9}}
        ),
    )
    assert path.stat().st_size < 10**5
    with pytest.raises(
        ValueError, match=r"a.nc cannot be read \(it claims 8000000 bytes\); delete it"
    ):
        read_data(path)
