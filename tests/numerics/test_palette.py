"""Colours of parts: contrast with the ground, and told apart by everybody."""

import itertools

import numpy as np
import pytest

from neuromanifold.numerics.palette import (
    DARK,
    GROUNDS,
    LIGHT,
    MIDDLE,
    MOST,
    colour_and_texture,
    gather_parts,
    hatch,
)

# Machado, Oliveira and Fernandes (2009), severity 1, on linear sRGB.
VISION = {
    "all cones": np.eye(3),
    "protanope": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranope": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanope": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(c)) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a: str, b: str, seen: object) -> float:
    return float(
        np.linalg.norm(lab(np.asarray(seen) @ linear(a)) - lab(np.asarray(seen) @ linear(b)))
    )


@pytest.mark.parametrize(
    "colours, ground",
    [(LIGHT, GROUNDS[0]), (DARK, GROUNDS[1]), (MIDDLE, GROUNDS[0]), (MIDDLE, "#111111")],
)
def test_colours_stand_out_from_the_ground_and_from_each_other_for_everybody(colours, ground):
    assert min(contrast(colour, ground) for colour in colours) >= 3
    for seen in VISION.values():
        assert min(distance(a, b, seen) for a, b in itertools.combinations(colours, 2)) >= 25


def test_the_measure_sees_colours_that_some_cannot_tell_apart():
    red, green = "#c05040", "#7f8f2f"
    assert (
        distance(red, green, VISION["all cones"])
        > 45
        > 25
        > distance(red, green, VISION["deuteranope"])
    )


def test_no_two_parts_have_colour_and_texture_in_common():
    assert len({colour_and_texture(k) for k in range(MOST)}) == MOST
    assert len({tuple(hatch(k).values()) for k in range(MOST)}) == MOST


def test_more_parts_than_can_be_told_apart_are_gathered_and_none_is_lost():
    parts = tuple((f"kind {k}", 100 - k) for k in range(30))
    shown = gather_parts(parts)
    assert (
        len(shown) == MOST
        and shown[0] == parts[0]
        and shown[-1][0] == f"{30 - MOST + 1} smaller kinds"
    )
    assert sum(count for _, count in shown) == sum(count for _, count in parts)
