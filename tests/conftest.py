"""Seeds from test names, the number of random draws, and how many of them were not vacuous."""

import importlib.util
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from neuromanifold.models import arguments

# Test files by the beginning of their names, and the package without which they are not collected.
NEEDED = {
    "test_torch_": "torch",
    "torch_": "torch",
    "test_flax": "flax",
    "test_haiku": "haiku",
    "test_transformers": "transformers",
    "test_browser": "playwright",
}

TARGETS = {
    "test-torch": {"torch", "flax", "haiku", "transformers"},
    "test-browser": {"playwright"},
}


def missing_package(path: Path) -> str | None:
    """The package that a test file needs and that is absent here."""
    found = [package for start, package in NEEDED.items() if path.name.startswith(start)]
    return next((package for package in found if importlib.util.find_spec(package) is None), None)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if missing_package(collection_path) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--draws", type=float, default=0.25, help="multiplies the random draws of every law"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Deadlines and health checks measure the machine's load, not the code.
    hypothesis.settings.register_profile(
        "neuromanifold",
        derandomize=True,
        deadline=None,
        max_examples=math.ceil(50 * config.getoption("--draws")),
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("neuromanifold")


@pytest.fixture
def draws(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """`draws(20)`: 5 cases in `make test`, 20 with `--draws 1`, 200 in `make acceptance`."""
    return lambda n: math.ceil(n * pytestconfig.getoption("--draws"))


def _seed(request: pytest.FixtureRequest) -> int:
    return zlib.crc32(request.node.name.encode())


@pytest.fixture
def key(request: pytest.FixtureRequest) -> jax.Array:
    """A JAX key that depends on nothing but the test's name."""
    return jax.random.key(_seed(request))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator that depends on nothing but the test's name."""
    return np.random.default_rng(_seed(request))


@pytest.fixture(params=[False, True], ids=["x64 off", "x64 on"])
def x64(request: pytest.FixtureRequest, _the_global_flag_is_never_touched: None) -> bool:
    """Runs a test twice: with JAX's global x64 flag off, as everywhere, and on."""
    jax.config.update("jax_enable_x64", request.param)
    return request.param


@pytest.fixture(autouse=True)
def _the_global_flag_is_never_touched(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    found, expected = jax.config.jax_enable_x64, request.node.funcargs.get("x64", False)
    jax.config.update("jax_enable_x64", False)
    assert found == expected, (
        f"JAX's global x64 flag was {expected} before the test and {found} after it"
    )


@pytest.fixture(autouse=True)
def _programs_are_kept_during_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library forgets its programs with every 64th new function; other tests do not count."""
    monkeypatch.setattr(arguments, "_new_functions", itertools.count(1))


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`tally(180, of=200, what="spectra with a clear gap")` is printed after the run; fails when
    no case counts.
    """

    def note(count: int, *, of: int, what: str) -> None:
        request.node.user_properties.append(("tally", f"{count} of {of} {what}"))
        assert 0 < count <= of, f"{count} of {of} {what}: the test is vacuous"

    return note


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # User properties travel with the reports of xdist's workers.
    lines = sorted(
        f"{report.nodeid}: {text}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, text in report.user_properties
        if report.when == "call" and name == "tally"
    )
    if lines:
        terminalreporter.section("cases that were not vacuous")
        for line in lines:
            terminalreporter.write_line(line)
    tests = sorted(Path(__file__).parent.rglob("test_*.py"))
    for target, packages in TARGETS.items():
        left_out = [path.stem for path in tests if missing_package(path) in packages]
        if left_out:
            terminalreporter.write_line(f"not run: {', '.join(left_out)}; see `make {target}`.")
