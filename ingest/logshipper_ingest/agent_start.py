"""Start of a store's agent, detached from the caller. Every job's sidecar imports this module, so
its imports stay light."""

import fcntl
import os
import sys

import logshipper

LOCK_FILE = "agent.lock"  # in the store: held by its running agent


def running_agent(root: str) -> int | None:
    """Return the process id of the store's running agent, or None."""
    try:
        fd = os.open(os.path.join(root, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(fd, 20, 0).strip() or b"0")
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def start(root: str) -> None:
    """Start the store's agent if none runs. It is no child of the caller and has none of its
    descriptors. Return at once; the agent writes its errors to agent.log."""
    if running_agent(root) is not None:
        return
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                # Close before Python starts: readers of the caller's output need not wait for it.
                let_go(None)
                # -P: the caller's folder may have modules of these names
                options = ["-P", "-m", "logshipper_ingest.agent", os.path.abspath(root)]
                os.execve(sys.executable, [sys.executable, *options], _environment())
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _environment() -> dict[str, str]:
    """Return an environment in which our packages can be imported even if not installed."""
    paths = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    for file in (__file__, logshipper.__file__):
        folder = os.path.dirname(os.path.dirname(os.path.abspath(file)))
        if os.path.basename(folder) not in ("site-packages", "dist-packages"):
            paths.append(folder)
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def let_go(out: int | None) -> None:
    """Close all descriptors. Standard output and error go to `out`, or nowhere."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null if out is None else out, 1)
    os.dup2(null if out is None else out, 2)
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own, closed by now
