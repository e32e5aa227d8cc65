"""The command line in this process, as `python -m neuromanifold` runs it: its status and its two
streams. A process of its own takes two seconds to import the same package again.
"""

import contextlib
import io
from unittest import mock

from neuromanifold.cli import main


def run(*arguments: object) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    command = ["neuromanifold", *map(str, arguments)]
    with (
        mock.patch("sys.argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
    ):
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0), out.getvalue(), error.getvalue()
    return 0, out.getvalue(), error.getvalue()
