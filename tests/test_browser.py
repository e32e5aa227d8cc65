"""The pages in headless Chromium: no errors, no overflow, hovering, zoom, keys, and names that
stay inert (`make test-browser`).
"""

import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from playwright.sync_api import sync_playwright

import neuromanifold as nm
from browser_pages import HOSTILE, write_pages
from neuromanifold.inspection.timeline import TITLES

NAMES = ("perceptron", "convolution", "hostile", "ledger")
WIDTHS = (400, 800, 1200)
TIP = ".tip.shown"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = next(
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, pages: dict[str, Any]) -> Iterator[Any]:
    """`opened("ledger", width=400)` is the page; at the end nothing may have been said on the
    console.
    """
    said, contexts = [], []

    def open_page(name: str, width: int = 1200, **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, accept_downloads=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request",
            lambda request: (
                said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
            ),
        )
        page.goto(pages[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def test_pages_are_small_and_stand_alone(pages: dict[str, Any]) -> None:
    for path in pages.values():
        assert path.stat().st_size < 1_500_000


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wider_than_the_page(opened: Any, name: str, width: int) -> None:
    page = opened(name, width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = "[...document.querySelectorAll('td, th, figure, p, h1, h2, h3, li, dd')]"
    beyond = f"{texts}.filter(e => e.getBoundingClientRect().right > innerWidth)"
    assert page.evaluate(f"{beyond}.length") == 0


def test_verdicts_are_whole_at_every_width(opened: Any) -> None:
    for width in WIDTHS:
        page = opened("ledger", width)
        boxes = [cell.bounding_box() for cell in page.query_selector_all("td.verdict")]
        assert boxes
        assert all(
            box["x"] >= 0 and box["x"] + box["width"] <= width and box["width"] > 60
            for box in boxes
        )


def test_hovering_reads_the_values(opened: Any) -> None:
    page = opened("perceptron")
    page.locator("#samples .plot").scroll_into_view_if_needed()
    box = page.locator("#samples .inner").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = page.locator(TIP).inner_text()
    assert "samples, in the order given: " in text
    assert "functional dimension, exact: " in text
    page.mouse.move(1, 1)
    assert page.locator(TIP).count() == 0


def test_a_term_shows_its_definition_and_leads_to_it(opened: Any) -> None:
    page = opened("perceptron")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    link = page.locator("#numbers a.term", has_text="functional dimension").first
    link.focus()
    assert "the rank of the Jacobian" in page.locator(TIP).inner_text()
    link.click()
    assert page.evaluate("document.querySelector(':target').textContent") == "functional dimension"
    missing = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => "
        "!document.querySelector(a.getAttribute('href')))"
    )
    assert page.evaluate(f"{missing}.length") == 0


def test_dragging_zooms_and_escape_shows_all(opened: Any) -> None:
    page = opened("perceptron")
    plot = page.locator("#samples .plot")
    plot.scroll_into_view_if_needed()
    ticks = page.locator("#samples .xt")
    before, curve = (
        ticks.text_content(),
        page.locator("#samples .curves path").last.get_attribute("d"),
    )
    box = page.locator("#samples .inner").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    page.mouse.up()
    assert ticks.text_content() != before
    plot.focus()
    page.keyboard.press("Escape")
    assert ticks.text_content() == before
    assert page.locator("#samples .curves path").last.get_attribute("d") == curve


def test_keys_read_a_plot_and_a_map_of_units(opened: Any) -> None:
    page = opened("convolution")
    page.locator("#units .cells svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(TIP).inner_text().endswith("channel 0: always off")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.locator(TIP).inner_text().endswith("channel 4: always on")
    page.locator("#spectrum .plot").first.focus()
    page.keyboard.press("Home")
    assert page.locator(TIP).inner_text().startswith("index, largest first: 1\n")
    page.keyboard.press("+")
    assert page.locator("#spectrum figure.zoomed").count() == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_reaches_every_section(opened: Any, name: str) -> None:
    page = opened(name)
    wanted = set(
        page.evaluate(
            "[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))"
        )
    )
    assert wanted
    reached = set()
    for _ in range(2000):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('href') "
            "|| '')"
        )
        if here.startswith("BODY"):
            break
        reached |= {here.partition("#")[2]} if here.startswith("A #") else set()
    assert wanted <= reached


@pytest.mark.parametrize("name", ["hostile", "ledger"])
def test_hostile_names_are_text(opened: Any, name: str) -> None:
    page = opened(name)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    if page.locator(".cells svg").count():
        page.locator(".cells svg").first.hover(position={"x": 4, "y": 4})
        assert HOSTILE in page.locator(TIP).inner_text()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert HOSTILE in page.evaluate("document.body.innerText")


def test_the_reduction_can_be_downloaded_and_read(opened: Any, tmp_path: Any) -> None:
    import neuromanifold as nm

    page = opened("perceptron")
    with page.expect_download() as waiting:
        page.locator("a.download").click()
    waiting.value.save_as(tmp_path / "smaller.safetensors")
    net, _ = nm.load(tmp_path / "smaller.safetensors")
    assert f"{net.n_params} of 61 parameters" in page.locator("#reduction").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["perceptron", "ledger"])
def test_text_stands_out_from_its_ground(opened: Any, name: str, scheme: str) -> None:
    """Contrast of at least 4.5, as WCAG AA asks."""
    page = opened(name, color_scheme=scheme)
    lowest = page.evaluate("""() => {
      const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
      const light = colour => numbers(colour).slice(0, 3).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
      const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (numbers(c)[3] !== 0) return c; } return "rgb(255, 255, 255)"; };
      const texts = [...document.querySelectorAll("p, td, th, li, a, dt, dd, summary, figcaption, button, h1, h2, h3, small, footer")];
      return Math.min(...texts.map(e => {
        const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((p, q) => q - p);
        return (a + 0.05) / (b + 0.05);
      }));
    }""")
    assert lowest >= 4.5


def test_every_drawing_has_an_alternative_and_prints(opened: Any) -> None:
    page = opened("perceptron")
    assert page.evaluate(
        "[...document.querySelectorAll('figure > svg, .plot > svg')].every(e => "
        "e.getAttribute('aria-label').length > 30)"
    )
    assert page.evaluate("document.querySelectorAll('.plot > svg').length") >= 8
    assert len(page.pdf()) > 20_000


def test_without_scripts_the_page_still_shows_everything(opened: Any) -> None:
    page = opened("perceptron", java_script_enabled=False)
    assert page.locator("#samples .curves path").last.get_attribute("d").startswith("M")
    assert page.locator("#units .cells path").count() >= 5


def test_the_live_page_shows_the_history_while_training_runs(browser: Any) -> None:
    """The numbers and curves in the page are those of the timeline, record after record, and
    nothing but the loopback is asked.
    """
    net, x = nm.MLP((1, 4, 1)), np.linspace(-1, 1, 20)[:, None]
    params = net.init(key=jax.random.key(0), dtype="float64")
    tracker = nm.Tracker(net, x, x**2)
    said, asked = [], []
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    with tracker.serve() as live:
        url = live.url
        page.goto(url)
        page.get_by_text("waiting for the first record").wait_for()
        for count, step in enumerate((0, 5, 10), 1):
            tracker.record(step, params)
            params = jax.tree.map(lambda a: 0.9 * a, params)
            records = f"{count} record{'s' if count > 1 else ''}"
            page.get_by_text(f"step {step}, {records}", exact=True).wait_for()
        data = tracker.timeline.data
        for name in ("loss", "functional_dimension", "effective_rank", "sharpness"):
            values, title = data[name].values, TITLES[name]
            heading = page.get_by_role("heading", name=title, exact=True)
            section = page.locator("section", has=heading)
            shown = float(section.locator("b").inner_text().replace(",", ""))
            assert shown == pytest.approx(float(values[-1]), rel=1e-3), name
            if values.min() < values.max():  # heights in the drawing, to a tenth of a pixel
                points = section.locator("path").get_attribute("d").replace("L", "M").split("M")[1:]
                heights = np.array([float(point.split()[1]) for point in points])
                share = (values.max() - values) / (values.max() - values.min())
                np.testing.assert_allclose(heights, 10 + 150 * share, atol=0.051)
        inside = page.evaluate("async () => (await fetch('history.json')).json()")
        curves = {p["title"]: p["curves"][0]["values"] for p in inside["panels"]}
        assert curves["loss"] == data["loss"].values.tolist()
    page.get_by_text("the training has ended").wait_for()
    context.close()
    assert said == []
    assert asked and all(address.startswith(url) for address in asked)
