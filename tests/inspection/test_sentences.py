"""No sentence of an inspection contradicts another: the numbers are read back from the text of
thirty networks and compared with each other and with the networks.
"""

import dataclasses
import re

import numpy as np
import pytest

import neuromanifold as nm
from inspection.zoo import KINDS, networks

Inspected = dict[tuple[str, str], tuple[object, object, object, nm.inspection.Inspection]]


@pytest.fixture(scope="module")
def inspected() -> Inspected:
    return {(k, p): (f, params, x, nm.inspect(f, params, x)) for k, p, f, params, x in networks()}


def _numbers(text: str, pattern: str) -> list[int]:
    """The whole numbers that the groups of the pattern catch, none where it does not match."""
    found = re.search(pattern, text)
    return [] if found is None else [int(group.replace(",", "")) for group in found.groups()]


def contradictions(found: nm.inspection.Inspection) -> list[str]:
    """What the sentences and the table of an inspection say against each other."""
    rows = {name.strip(): (value, remark) for name, value, remark in found.rows}
    text = " ".join(found.verdict)
    rank, D = int(found.dimension), found.n_params
    limit = min(found.rows_of_jacobian, D)
    facts = {
        "the rank is within what the sample allows": rank <= limit,
        "the table has the rank": rows["functional dimension"][0] == f"{rank:,}",
        "the shares add up to D": sum(count for _, count in found.shares) == D,
    }
    counted = _numbers(text, r"(\d[\d,]*) of (\d[\d,]*) parameter directions")
    for number, whole in [counted] if counted else []:
        facts["the headline counts rank and D"] = (number, whole) == (rank, D)
    for (most,) in filter(None, [_numbers(text, r"can show at most (\d[\d,]*)")]):
        facts["the sample shows no more than it can"] = rank <= most == limit
    page = nm.report.render(found)
    facts["every link leads somewhere"] = all(
        f'id="{name}"' in page for name in re.findall(r'href="#([^"]+)"', page)
    )
    settled = re.search(r"would show no more|added nothing", text) is not None
    growing = re.search(r"still grew|more samples may show", text) is not None
    facts["it has settled or it grows"] = not (settled and growing)
    facts["settled where the table does not doubt it"] = not (
        settled and "too late" in rows.get("reached after", ("", ""))[1] and found.account is None
    )
    for (reached,) in filter(None, [_numbers(text, r"reveal at least (\d[\d,]*)")]):
        facts["other inputs reveal more than the sample, and at most D"] = rank < reached <= D
    for (enough,) in filter(None, [_numbers(text, r"linear regions? would show (\d[\d,]*)")]):
        reached = found.account.chain[2]
        facts["rank < on its regions ≤ on all"] = rank < enough <= reached
        bound = _numbers(rows["linear regions sampled"][1], r"dimension of at most (\d[\d,]*)")
        facts["what regions would show is within their bound"] = not bound or enough <= bound[0]
    if "reveals more" in text or "all of the" in text:
        facts["nothing more is to be seen"] = "reveal at least" not in text
    if found.account is not None:
        free, remark = rows["directions that change nothing"]
        counts = [int(n.replace(",", "")) for n in re.findall(r"(?:: |, |; )(\d[\d,]*) ", remark)]
        facts["reasons add up to the directions that change nothing"] = sum(counts) == D - rank
        facts["the table subtracts the rank"] = free == f"{D - rank:,}"
    if found.layers is not None:
        off, of = sum(s.off for s in found.layers), sum(s.cells for s in found.layers)
        (name,) = [name for name in rows if name.endswith(" always off")]
        facts["units off: table"] = rows[name][0] == f"{off:,} of {of:,}"
        units = name.removesuffix(" always off")
        said = f"{off:,} of {of:,} {units}" if off else f"all {of:,} {units} are on at"
        facts["units off: sentence"] = said.lower() in text.lower()
    if found.reduction is not None:
        left = D - found.reduction.parameters_saved
        value, remark = rows["equivalent smaller network"]
        facts["the smaller network has what the table says"] = value == f"{left:,}"
        facts["none found where nothing was saved"] = ("no smaller one" in remark) == (left == D)
        facts["the sentence agrees"] = (f"network with {left:,} of the {D:,}" in text) == (left < D)
    if found.bottleneck is not None:
        shaded = "No layer is in a bottleneck" not in page
        facts["the picture of the bottleneck agrees"] = shaded == (rows["bottleneck"][0] != "none")
    if found.bottleneck is not None and rows["bottleneck"][0] != "none":
        widths, k = found.bottleneck.net.widths, found.bottleneck.rank
        layers = _numbers(rows["bottleneck"][1], r"in layers? (\d+)")
        facts["a bottleneck is narrower than its layer"] = k < min(widths[layers[0] - 1 :][:2])
    facts["no plural of one"] = not re.search(
        r"\b1 (neurons|channels|units|samples|outputs|regions)\b", str(found)
    )
    facts["no remark is empty"] = all(remark for _, remark in rows.values())
    facts["one direction changes, several change"] = not re.search(
        r"\b1 of [\d,]+ parameter directions change\b", text
    )
    return [name for name, holds in facts.items() if not holds]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("planted", ["nothing", "dead", "duplicate"])
def test_no_sentence_contradicts_another(inspected, kind, planted):
    *_, found = inspected[kind, planted]
    assert contradictions(found) == []
    page = re.sub(r"<[^>]*>", "", nm.report.render(found))
    assert all(sentence in page for sentence in map(_escaped, found.verdict))


def _escaped(sentence: str) -> str:
    return sentence.replace("'", "&#x27;")


def test_thirty_networks_of_ten_kinds(inspected):
    assert len(inspected) == 30
    regions = [found for *_, found in inspected.values() if found.regions is not None]
    accounts = [found for *_, found in inspected.values() if found.account is not None]
    assert len(regions) >= 12 and len(accounts) >= 15  # not vacuous


def test_contradictions_are_seen(inspected):
    """The control: the same checks on inspections with a number changed."""
    *_, found = inspected["one variable", "dead"]
    small = dataclasses.replace(found.reduction, parameters_saved=0)
    assert contradictions(dataclasses.replace(found, n_params=found.n_params + 1))
    forged = dataclasses.replace(found.account, chain=(*found.account.chain[:2], 1000, 46))
    assert contradictions(dataclasses.replace(found, account=forged))
    assert not contradictions(dataclasses.replace(found, reduction=small))


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("linear", "tanh", "language model")]
)
def test_a_planted_dead_unit_is_off_and_goes(inspected, kind):
    *_, dead = inspected[kind, "dead"]
    assert any(0 in layer.dead for layer in dead.layers)
    assert dead.closed >= 2  # what writes and what reads it, at least
    assert dead.reduction.neurons_saved >= 1


def test_the_zero_derivatives_of_float64_are_those_of_the_jacobian(inspected):
    for kind in ("transformer", "ResNet", "language model", "sigmoid at the end"):
        f, params, x, found = inspected[kind, "dead"]
        J = np.asarray(nm.jacobian(f, params, x))
        assert found.closed == int((J == 0).all(axis=0).sum()), kind
        assert found.exact is None


def test_one_direction_of_a_network_of_zeros(rng):
    """All parameters are zero, every bend is met exactly: the last bias alone changes the function."""
    net = nm.MLP((2, 3, 1))
    params = tuple(nm.Layer(np.zeros((b, a)), np.zeros(b)) for a, b in ((2, 3), (3, 1)))
    found = nm.inspect(net, params, rng.normal(size=(6, 2)))
    assert int(found.account.functional) == 1 and sum(n for _, n in found.shares) == net.n_params
    assert found.verdict[0].startswith("On these 6 samples 1 of 13 parameter directions changes")
    assert contradictions(found) == []


@pytest.mark.parametrize("case", ["one sample", "few samples", "equal samples", "nothing to spare"])
def test_small_samples_and_networks_without_redundancy(case, rng):
    net = nm.MLP((2, 6, 1)) if case != "nothing to spare" else nm.MLP((3, 2), "identity")
    shapes = zip(net.widths[1:], net.widths[:-1], strict=True)
    params = tuple(nm.Layer(rng.normal(size=s), rng.normal(size=s[0])) for s in shapes)
    n = {"one sample": 1, "few samples": 4}.get(case, 20)
    x = rng.normal(size=(n, net.widths[0])) * (case != "equal samples")
    found = nm.inspect(net, params, x)
    assert contradictions(found) == []
    whole = int(found.dimension) == found.n_params
    assert whole == (case == "nothing to spare")
    limited = "can show at most" in found.headline
    assert limited == (case in ("one sample", "few samples"))


def test_units_are_counted_on_every_sample_given(rng):
    """A unit that only a sample left out of the thinned ones opens is not off, and stays."""
    net = nm.MLP((1, 2, 1))
    hidden = nm.Layer(np.array([[1.0], [1.0]]), np.array([0.5, -2.5]))
    params = (hidden, nm.Layer(np.array([[1.0, 1.0]]), np.zeros(1)))
    x = np.linspace(-1.0, 1.0, 40)[:, None]
    x[7] = 3.0  # the only sample at which the second unit is on; every fourth sample is taken
    found = nm.inspect(net, params, x, samples=10)
    assert 3.0 not in found.sample[0]
    assert [s.off for s in found.layers] == [0]
    assert found.layers[0].shares.tolist() == [np.mean(x > -0.5), 1 / 40]
    assert (found.n_reduced, found.reduction.neurons_saved) == (40, 0)
    assert "All 2 units are on at some of the 40 samples" in found.verdict[-1]
    chosen = nm.inspect(net, params, found.sample[0])  # the control: nothing was left out
    assert [s.off for s in chosen.layers] == [1] and chosen.reduction.neurons_saved == 1
