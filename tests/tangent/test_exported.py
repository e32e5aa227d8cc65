"""Certificates that leave the house, re-checked by a program that knows nothing of this library."""

import hashlib
import importlib.util
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest

import neuromanifold as nm
from graph.architectures import EXACT
from neuromanifold.tangent.rank import certificate as exported

TOOL = Path(__file__).parents[2] / "tools" / "check_certificate.py"
_spec = importlib.util.spec_from_file_location("check_certificate", TOOL)
assert _spec and _spec.loader
checker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checker)


def _written(folder: Path, f: Any, params: Any, x: Any, reason: str) -> dict[str, Any]:
    rank = nm.functional_dimension(f, params, x, exact=True)
    assert rank.certificate.reason == reason
    text = rank.certificate.save(folder / "certificate.json").read_text()
    assert checker.whole(text)
    return json.loads(text)


def _networks(key: Any, rng: np.random.Generator) -> dict[str, tuple[Any, Any, Any]]:
    """One network for each reason that the checker re-checks in full."""
    regions, full, symmetric = (
        nm.MLP((1, 6, 6, 1)),
        nm.MLP((3, 4, 1)),
        nm.MLP((2, 2, 2), nm.power(2), bias=False),
    )
    return {
        "regions": (regions, regions.init(key=key), np.linspace(-1, 1, 25)[:, None]),
        "full rank": (full, full.init(key=key), rng.normal(size=(4, 3))),
        "kernel vectors": (symmetric, symmetric.init(key=key), rng.normal(size=(12, 2))),
    }


@pytest.mark.parametrize("reason", ["regions", "full rank", "kernel vectors"])
def test_every_claim_is_re_checked_and_holds(reason, key, rng, tmp_path):
    found = [*checker.check(_written(tmp_path, *_networks(key, rng)[reason], reason))]
    assert len(found) >= 4
    assert {verdict for _, verdict in found} == {"holds"}


@pytest.mark.parametrize("spoilt", ["place", "name", "text"])
def test_a_spoilt_file_is_said_to_be_no_certificate(spoilt, key, rng, tmp_path):
    document = _written(tmp_path, *_networks(key, rng)["full rank"], "full rank")
    gather = next(one for one in document["jacobian"]["instructions"] if one[0] == "gather")
    gather[0 if spoilt == "name" else 2] = "gathers" if spoilt == "name" else [10**6]
    file = tmp_path / "spoilt.json"
    file.write_text("{" if spoilt == "text" else json.dumps(document))
    done = subprocess.run([sys.executable, str(TOOL), str(file)], capture_output=True, text=True)
    assert done.returncode == 1 and not done.stderr
    assert "the file is no certificate" in done.stdout


@pytest.mark.parametrize(
    "architecture",
    [a for a in EXACT if a.name in ("max-pooling", "residual", "recurrent")],
    ids=str,
)
def test_the_instructions_of_other_networks(architecture, rng, tmp_path):
    params, x = architecture.draw(rng), architecture.inputs(rng, 4)
    document = _written(tmp_path, architecture.f, params, x, "full rank")
    assert {verdict for _, verdict in checker.check(document)} == {"holds"}
    jacobian = document["jacobian"]
    exact = checker.evaluate(jacobian["instructions"], {jacobian["output"]})[jacobian["output"]]
    expected = nm.jacobian(architecture.f, params, x)
    assert np.allclose(
        np.array([float(v) for v in exact]).reshape(expected.shape),
        expected,
        rtol=1e-12,
        atol=1e-13,
    )


def _composite(start: int) -> int:
    """The first odd composite number from an odd `start` on: another prime would be a true
    claim.
    """
    return next(n for n in itertools.count(start, 2) if not flint.fmpz(n).is_prime())


def _altered(document: dict[str, Any], rng: np.random.Generator) -> str:
    """Change one claim so that it says something else; what was changed."""
    claims, bends = document["claims"], document["bends"]
    r, (height, width) = claims["rank"], claims["shape"]
    edits = {
        "rank": lambda: claims.update(rank=r + int(rng.choice([-1, 1]))),
        "shape": lambda: claims.update(shape=[height, width + 1]),
        "prime": lambda: claims.update(
            prime=_composite(claims["prime"] + 2 * int(rng.integers(1, 4)))
        ),
        "rows": lambda: claims["rows"].__setitem__(0, claims["rows"][-1]),
        "columns": lambda: claims["columns"].__setitem__(-1, claims["columns"][0]),
        "reason": lambda: claims.update(
            reason="full rank" if claims["reason"] != "full rank" else "kernel vectors"
        ),
        "probability": lambda: claims.update(failure_probability=1e-9),
    }
    if bends["signs"]:
        signs = bends["signs"][int(rng.integers(len(bends["signs"])))][1]
        at = int(rng.integers(len(signs)))
        edits["sign"] = lambda: signs.__setitem__(at, -signs[at] or 1)
    if claims["reason"] == "regions":
        counts = claims["regions"]["counts"]
        edits["regions"] = lambda: counts.__setitem__(0, counts[0] + 1)
        edits["affine"] = lambda: claims.update(affine=claims["affine"] + 1)
    if claims["kernel"]:
        entry = claims["kernel"][0][0]
        edits["kernel"] = lambda: entry.__setitem__(1, str(checker.exactly(entry[1]) + 1))
    name = str(rng.choice(sorted(edits)))
    edits[name]()
    return name


def test_twenty_tampered_certificates_are_refused(key, rng, tmp_path, tally):
    documents = [
        _written(tmp_path, *network, reason) for reason, network in _networks(key, rng).items()
    ]
    edited = set()
    for index in range(20):
        document = json.loads(json.dumps(documents[index % len(documents)]))
        edited.add(name := _altered(document, rng))
        assert "fails" in {verdict for _, verdict in checker.check(document)}, name
    tally(len(edited), of=11, what="kinds of claims that were altered")


def test_primes_are_told_from_composites(rng):
    """Carmichael numbers without small factors, which Fermat's test lets through, and numbers
    drawn at random.
    """
    found = 0
    for k in itertools.count(10**5):
        factors = [6 * k + 1, 12 * k + 1, 18 * k + 1]
        if all(flint.fmpz(n).is_prime() for n in factors):
            n = math.prod(factors)
            assert pow(2, n - 1, n) == 1
            assert not checker.is_prime(n)
            found += 1
        if found == 5:
            break
    drawn = [int(n) | 1 for n in rng.integers(2**59, 2**62, size=2_000)]
    expected = [flint.fmpz(n).is_prime() for n in drawn]
    assert any(expected)
    assert [checker.is_prime(n) for n in drawn] == expected


def test_a_byte_changed_in_the_file_is_seen_and_the_exit_status_says_so(key, rng, tmp_path):
    _written(tmp_path, *_networks(key, rng)["full rank"], "full rank")
    path = tmp_path / "certificate.json"
    good = subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True)
    assert (good.returncode, "fails" in good.stdout) == (0, False)
    path.write_text(path.read_text().replace('"network":"MLP', '"network":"XLP'))
    bad = subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True)
    assert bad.returncode == 1
    assert "fails           the file is whole" in bad.stdout


def test_a_jacobian_too_large_to_write_is_refused(key, rng, monkeypatch, tmp_path):
    monkeypatch.setattr(exported, "_MOST_NUMBERS", 80)
    with pytest.raises(
        ValueError, match="the Jacobian is 4×21, too large to be written out as instructions"
    ):
        _written(tmp_path, *_networks(key, rng)["full rank"], "full rank")


def test_the_digest_is_of_the_text_before_it():
    body = '{"a":1}'
    text = body[:-1] + ',"sha256":"' + hashlib.sha256(body.encode()).hexdigest() + '"}\n'
    assert checker.whole(text)
    assert not checker.whole(text.replace("1", "2", 1))
