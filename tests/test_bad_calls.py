"""A sample of tools/bad_calls.py: one bad argument each, answered by one sentence of ours."""

import pytest

import cast
from bad_calls import MODELS, VERBS, calls, outcome

CHOSEN = [call for call in calls() if call[2] in MODELS and call[0] == "ntk"] + [
    call
    for call in calls()
    if call[:2] in {("functional_dimension", "exact"), ("alignment", "lr"), ("train", "key")}
]


def test_there_are_thousands():
    assert sum(1 for _ in calls()) >= 2500 and len(VERBS) >= 70


@pytest.mark.parametrize("call", CHOSEN, ids=["-".join(call[:3]) for call in CHOSEN])
def test_a_bad_argument_ends_in_one_sentence(call):
    verb, argument, way, arguments = call
    with cast.unchecked():
        how, said = outcome(verb, arguments, 60)
    fine = way in {"minus one", "two and a half", "10**12", "inf", "None"} and argument == "lr"
    assert how == "refused" or (how == "answered" and fine), said
