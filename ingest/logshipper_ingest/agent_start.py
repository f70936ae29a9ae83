"""Starts a store's agent, detached from the caller. Imported by the sidecar of every job: light
imports only.

Run as a module, it is the new process: `python -m logshipper_ingest.agent_start --store DIR`.
"""

import fcntl
import gc
import os
import sys

import logshipper

LOCK_FILE = "agent.lock"  # in the store: held by the agent at work on it
_UNCOLLECTED = 50_000  # objects: more than its imports make


def running_agent(root: str) -> int | None:
    """The process id of the agent at work on the store, None where there is none."""
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
    """Starts the agent of a store, where none is at work, detached from the caller: no child of
    it, none of its descriptors. Returns at once; what goes wrong stands in agent.log."""
    if running_agent(root) is not None:
        return
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                # now: whoever waits for the end of the caller's output doesn't wait for Python's
                # start
                let_go(None)
                # -P: the caller's folder may have modules of these names
                arguments = [
                    sys.executable,
                    "-P",
                    "-m",
                    "logshipper_ingest.agent_start",
                    "--store",
                    os.path.abspath(root),
                ]
                os.execve(sys.executable, arguments, _environment())
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _environment() -> dict[str, str]:
    """With our packages found even where they aren't installed."""
    folders = [
        os.path.dirname(os.path.dirname(os.path.abspath(file)))
        for file in (__file__, logshipper.__file__)
    ]
    more = [
        path for path in folders if os.path.basename(path) not in ("site-packages", "dist-packages")
    ]
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), *more]
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def let_go(out: int | None) -> None:
    """Closes all descriptors; standard output and error go to out, or nowhere."""
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


if __name__ == "__main__":
    from logshipper.search_path import put_installed_first

    put_installed_first()
    gc.set_threshold(_UNCOLLECTED)
    from logshipper_ingest.agent.user_agent import main

    sys.exit(main())
