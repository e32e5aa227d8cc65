"""A sample of tools/spoilt_files.py: every spoilt file is read, or refused in one sentence of ours."""

import random
from pathlib import Path

import pytest

from spoilt_files import FORMATS, outcome, spoilt


@pytest.mark.parametrize("name", FORMATS)
def test_a_spoilt_file_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path):
    suffix, make, read = FORMATS[name]
    whole, path = make(), tmp_path / f"spoilt{suffix}"
    path.write_bytes(whole)
    assert outcome(path, read, 60) == ("read", "")
    answers = []
    for number in range(25):
        path.write_bytes(spoilt(whole, random.Random(f"{name} {number}")))
        answers.append(outcome(path, read, 60))
    assert {how for how, _ in answers} <= {"read", "refused"}, answers
    if name != "certificate":  # its program prints what fails
        assert "refused" in {how for how, _ in answers}


def test_an_error_that_is_not_ours_is_seen(tmp_path: Path):
    def foreign(path: Path) -> None:
        raise KeyError("weights")

    assert outcome(tmp_path, foreign, 60)[0] == "foreign"
