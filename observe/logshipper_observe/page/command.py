"""The page's server in the foreground, for `open` and `serve`: prints the link, ends at Ctrl-C."""

import argparse
import os
import shlex
import signal
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from logshipper.errors import os_words
from logshipper_ingest.console.stop_signals import set_by_signals
from logshipper_observe.base.running import say
from logshipper_observe.page.access import write_redirect
from logshipper_observe.page.server import PageServer

SIGNAL_SECS = 1.0  # the longest delay of a signal


def serve(args: argparse.Namespace, *, port: int = 0, view: str = "", browser: bool = False) -> int:
    """Serve until Ctrl-C or SIGTERM. The link shows a view, perhaps in a new browser window."""
    over = threading.Event()
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with set_by_signals([over], ends), PageServer(args, port, say) as server:
        link = server.link(view)
        sys.stdout.write(f"{link}\n")
        sys.stdout.flush()
        if hint := forwarding_hint(server.port):
            say(hint)
        say("keep the link secret: it lets anyone read your jobs. Ctrl-C ends the page")
        redirect = _open_browser(link) if browser else None
        try:
            while not over.wait(SIGNAL_SECS):
                pass  # a signal just before the wait takes effect after it
        finally:
            if redirect is not None:
                redirect.unlink(missing_ok=True)
    say("the page has ended")
    return 0


def forwarding_hint(port: int) -> str:
    """Return how a browser reaches the page through an ssh connection, "" without one."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    user = os.environ.get("USER", "")
    destination = shlex.quote(f"{user}@{socket.gethostname()}" if user else socket.gethostname())
    return f"from your own machine, first: ssh -N -L {port}:127.0.0.1:{port} {destination}"


def _open_browser(link: str) -> Path | None:
    """Open a browser by a private file; return the file for removal. Through ssh and without a
    display, open none: it would be in the terminal or on another screen."""
    if os.environ.get("SSH_CONNECTION") or not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return None
    try:
        path = Path(write_redirect(link))
    except OSError as error:
        say(f"can't write a file for the browser: {os_words(error)}; open the link yourself")
        return None
    if not webbrowser.open(path.as_uri()):
        say("can't start a browser: open the link yourself")
    return path
