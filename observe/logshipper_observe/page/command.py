"""What `open` and `serve` share: the page's server runs in the foreground, its link is printed,
Ctrl-C ends it."""

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

LOOK_SECS = 1.0  # between two looks for signals


def serve(args: argparse.Namespace, *, port: int = 0, view: str = "", browser: bool = False) -> int:
    """Serves until Ctrl-C or SIGTERM. view: what the link shows; browser: opens one by it, too."""
    over = threading.Event()
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with set_by_signals([over], ends), PageServer(args, port, say) as server:
        link = server.link(view)
        sys.stdout.write(f"{link}\n")
        sys.stdout.flush()
        if hint := forwarding_hint(server.port):
            say(hint)
        say("the link is for you alone: who has it reads your jobs. Ctrl-C ends the page")
        redirect = _open_browser(link) if browser else None
        try:
            while not over.wait(LOOK_SECS):
                pass  # Python sees a signal that came just before the wait after it only
        finally:
            if redirect is not None:
                redirect.unlink(missing_ok=True)
    say("the page is closed")
    return 0


def forwarding_hint(port: int) -> str:
    """How a browser on the other side of an ssh connection reaches the page, "" where there is
    none."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    user = os.environ.get("USER", "")
    destination = shlex.quote(f"{user}@{socket.gethostname()}" if user else socket.gethostname())
    return f"from your own machine, first: ssh -N -L {port}:127.0.0.1:{port} {destination}"


def _open_browser(link: str) -> Path | None:
    """Opens a browser by a file that only the user can read; the file, to be removed. Through ssh,
    and without a display, none is opened: it would be one in the terminal, or nobody's."""
    if os.environ.get("SSH_CONNECTION") or not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return None
    try:
        path = Path(write_redirect(link))
    except OSError as error:
        say(f"no file to hand the link over: {os_words(error)}; open the link yourself")
        return None
    if not webbrowser.open(path.as_uri()):
        say("no browser could be opened: open the link yourself")
    return path
