"""`LivePage`: a page on this machine's own address that follows a training while it runs."""

import csv
import html
import json
import math
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.inspection.timeline import Timeline, panels_of
from neuromanifold.numerics.palette import DARK, GROUNDS, LIGHT

_LOOPBACK = "127.0.0.1"
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"


def history_of(timeline: Timeline) -> str:
    """What the page shows, as JSON: the steps, and panels of curves with null where nothing was
    measured.
    """
    curves = timeline.scalars(quantities=False)
    return _history(timeline.steps, curves, timeline.left_out)


def history_of_folder(folder: Path) -> str:
    """The same of a folder in which a tracker keeps `timeline.csv`."""
    path = folder / "timeline.csv"
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    columns = np.array([[float(v) if v else math.nan for v in row] for row in rows])
    columns = columns.reshape(len(rows), len(names))
    own = [k for k, n in enumerate(names) if k and not n.startswith("conserved_quantities/")]
    return _history(columns[:, 0].astype(int), {names[k]: columns[:, k] for k in own}, {})


def _history(
    steps: np.ndarray, curves: Mapping[str, np.ndarray], left_out: Mapping[str, str]
) -> str:
    panels = panels_of(curves)
    if "sharpness" in curves:
        curvature = np.where(curves["sharpness"] > 0, curves["sharpness"], np.nan)
        panels.append(("learning-rate bound, 2/sharpness", {"sharpness": 2 / curvature}))
    shown = [
        {
            "title": title,
            "curves": [{"label": n, "values": _numbers(a)} for n, a in own.items()],
        }
        for title, own in panels
        if own
    ]
    return json.dumps(
        {"steps": steps.tolist(), "panels": shown, "left_out": dict(left_out)}, allow_nan=False
    )


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(v) if math.isfinite(v) else None for v in values]


class LivePage:
    """A page at `url` that asks for `history` once a second and draws it, until `close`.

    It listens on the loopback alone, so that no other machine reaches it, and answers only to that
    name, so that no page of another site reads it. A daemon thread serves it.

    >>> with LivePage(lambda: '{"steps": [], "panels": [], "left_out": {}}', "a run") as page:
    ...     page.address[0], page.url.startswith("http://127.0.0.1:")
    ('127.0.0.1', True)
    """

    def __init__(self, history: Callable[[], str], title: str, *, port: int = 0):
        if not isinstance(port, int) or not 0 <= port < 2**16:
            raise ValueError(f"`port` is {port!r}; pass a port, or 0 for any that is free.")
        try:
            self._server = ThreadingHTTPServer((_LOOPBACK, port), _handler(history, title))
        except OSError as error:
            raise ValueError(
                f"`port` is {port}, which is taken ({error.strerror}); pass 0 for one that is free."
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="neuromanifold live", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port it listens on."""
        host, port = self._server.socket.getsockname()
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return "http://{}:{}/".format(*self.address)

    @property
    def is_open(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop; a second time nothing happens."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> "LivePage":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LivePage({self.url if self.is_open else 'closed'})"


def _handler(history: Callable[[], str], title: str) -> type[BaseHTTPRequestHandler]:
    texts: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html", lambda: _PAGE.format(title=html.escape(title))),
        "/live.js": ("text/javascript", _script),
        "/live.css": ("text/css", lambda: _STYLE),
        "/history.json": ("application/json", history),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port = self.connection.getsockname()[1]
            if self.headers.get("Host") not in (f"{_LOOPBACK}:{port}", f"localhost:{port}"):
                return self.send_error(403)
            kind, text = texts.get(self.path.partition("?")[0], ("", str))
            if not kind:
                return self.send_error(404)
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal is the training's."""

    return Handler


def _script() -> str:
    return files("neuromanifold.inspection").joinpath("live.js").read_text(encoding="utf-8")


def write_to(writer: Any, step: int, scalars: Mapping[str, float]) -> None:
    """One step to a TensorBoard writer (`add_scalar(name, value, step)`) or to a run of Weights &
    Biases (`log(values, step=step)`).
    """
    if (add := getattr(writer, "add_scalar", None)) is not None:
        for name, value in scalars.items():
            add(name, value, step)
    else:
        writer.log(dict(scalars), step=step)


def check_writer(writer: Any) -> None:
    """Refuse what is neither."""
    if not any(callable(getattr(writer, name, None)) for name in ("add_scalar", "log")):
        raise TypeError(
            f"`writer` is a {type(writer).__name__}, which has neither `add_scalar` nor `log`; pass "
            "a SummaryWriter of TensorBoard or a run of Weights & Biases."
        )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="live.css"><script src="live.js" defer></script></head>
<body><h1>{title}</h1><p id="state" role="status">waiting for the first record</p>
<main id="panels"></main><ul id="left-out"></ul></body></html>
"""


def _colours(palette: tuple[str, ...]) -> str:
    return " ".join(f"--c{k}: {colour};" for k, colour in enumerate(palette))


_STYLE = f"""
:root {{ color-scheme: light dark; {_colours(LIGHT)} --ground: {GROUNDS[0]}; --ink: #222; --soft: #555; --line: #e1e4e8; }}
@media (prefers-color-scheme: dark) {{
  :root {{ {_colours(DARK)} --ground: {GROUNDS[1]}; --ink: #e6e6e6; --soft: #b0b5bd; --line: #3a3f47; }}
}}
""" + "".join(f".k{k} {{ --k: var(--c{k}); }}\n" for k in range(len(LIGHT))) + """
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  margin: 0 auto; max-width: 72rem; padding: 1.2rem; }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 0; }
#state, #left-out { color: var(--soft); font-size: .92rem; margin: .2rem 0 1rem; overflow-wrap: anywhere; }
main { display: grid; gap: 1.2rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
section { min-width: 0; } svg { display: block; width: 100%; height: auto; }
text { fill: var(--soft); font: 12px system-ui, sans-serif; } line { stroke: var(--line); }
path { fill: none; stroke: var(--k); stroke-width: 1.8; stroke-linejoin: round; } circle { fill: var(--k); }
ul { list-style: none; margin: 0; padding: 0; font-size: .88rem; display: flex; flex-wrap: wrap; gap: 0 1rem; }
li b { color: var(--ink); font-variant-numeric: tabular-nums; }
i { display: inline-block; width: 1.2em; border-top: 3px solid var(--k); margin-right: .4em; vertical-align: .25em; }
"""  # fmt: skip
