"""The live page: its numbers, its address, what it escapes, and that it stops."""

import csv
import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import commands
import neuromanifold as nm
from neuromanifold.inspection import LivePage

NET, X = nm.MLP((1, 4, 1)), np.linspace(-1, 1, 20)[:, None]


def get(page, path="/history.json", host=None):
    link = http.client.HTTPConnection(*page.address, timeout=10)
    link.request("GET", path, headers={} if host is None else {"Host": host})
    answer = link.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def curves(text):
    found = json.loads(text)
    return {(p["title"], c["label"]): c["values"] for p in found["panels"] for c in p["curves"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    params = NET.init(key=jax.random.key(0), dtype="float64")
    tracker = nm.Tracker(NET, X, X**2, every=5, folder=folder)
    page = tracker.serve()
    empty = get(page)[1]
    states = []
    for step in range(11):
        tracker(step, params)
        params = jax.tree.map(lambda a: 0.95 * a, params)
        states.append(get(page)[1])
    yield tracker, page, folder, empty, states
    page.close()


def test_values_are_those_of_the_history_after_each_record(run):
    tracker, page, _, empty, states = run
    assert json.loads(empty)["steps"] == []
    assert [len(json.loads(s)["steps"]) for s in states] == [1] * 5 + [2] * 5 + [3]
    shown, data = curves(get(page)[1]), tracker.timeline.data
    assert shown["loss", "loss"] == data["loss"].values.tolist()
    assert shown["functional dimension", "functional_dimension"] == (
        data["functional_dimension"].values.tolist()
    )
    layer = str(data["layer"].values[0])
    assert shown["units always off", layer] == data["always_off"].values[:, 0].tolist()
    bound = shown["learning-rate bound, 2/sharpness", "sharpness"]
    np.testing.assert_allclose(bound, 2 / data["sharpness"].values, rtol=1e-15)


def test_a_folder_is_watched_with_the_same_numbers(run):
    tracker, page, folder, *_ = run
    from neuromanifold.inspection.live import history_of_folder

    assert curves(history_of_folder(folder)) == curves(get(page)[1])
    with (folder / "timeline.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == tracker.timeline.data["loss"].values.tolist()


def test_nobody_but_this_machine_is_answered(run):
    _, page, *_ = run
    assert page.address[0] == "127.0.0.1" and page.url.startswith("http://127.0.0.1:")
    assert get(page, "/")[0] == 200 and get(page, "/../secret")[0] == 404
    assert get(page, host="example.org")[0] == 403  # a name that another site may point here
    assert "default-src 'none'" in get(page, "/")[2]["Content-Security-Policy"]


def test_names_are_escaped():
    with LivePage(lambda: "{}", "<script>alert(1)</script>") as page:
        text = get(page, "/")[1]
        assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        script = get(page, "/live.js")[1]
        assert "innerHTML" not in script and "textContent" in script


def test_it_stops_and_its_port_is_free_again():
    page = LivePage(lambda: "{}", "a run")
    port = page.address[1]
    with pytest.raises(ValueError, match=f"`port` is {port}, which is taken"):
        LivePage(lambda: "{}", "another", port=port)
    page.close()
    page.close()
    assert not page.is_open and repr(page) == "LivePage(closed)"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    with pytest.raises(ValueError, match="`port` is 70000"):
        LivePage(lambda: "{}", "a run", port=70_000)


class Board:
    """What TensorBoard's SummaryWriter offers."""

    def __init__(self):
        self.seen = []

    def add_scalar(self, tag, value, global_step=None):
        self.seen.append((global_step, tag, value))


class Run:
    """What a run of Weights & Biases offers."""

    def __init__(self):
        self.seen = []

    def log(self, data, step=None):
        self.seen.append((step, data))


def test_writers_get_every_record_those_so_far_too():
    board, run_of_wandb = Board(), Run()
    late = nm.Tracker(NET, X, X**2)
    params = NET.init(key=jax.random.key(0), dtype="float64")
    late.record(0, params)
    late.log_to(board)
    late.log_to(run_of_wandb)
    late.record(5, jax.tree.map(lambda a: 0.5 * a, params))
    expected = list(late.timeline.records())
    assert run_of_wandb.seen == expected and len(expected) == 2
    assert board.seen == [(s, name, v) for s, values in expected for name, v in values.items()]
    with pytest.raises(TypeError, match="neither `add_scalar` nor `log`"):
        late.log_to(object())


def test_the_command_serves_a_folder_until_it_is_interrupted(run):
    _, page, folder, *_ = run
    command = [sys.executable, "-m", "neuromanifold", "watch", str(folder)]
    own = {**os.environ, "PYTHONPATH": str(Path(nm.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition("http://127.0.0.1:")[2].partition("/")[0])
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        link.request("GET", "/history.json")
        assert curves(link.getresponse().read()) == curves(get(page)[1])
        process.terminate()
        assert process.wait(20) == 130


def test_a_folder_without_a_timeline_is_refused(tmp_path):
    code, _, error = commands.run("watch", tmp_path)
    assert code == 2 and "there is no timeline.csv; pass the folder of" in error
