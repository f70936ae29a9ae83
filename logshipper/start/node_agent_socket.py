"""Asks the node's agent for a capture's folder. Light: without an agent it imports nothing.

One JSON object each way over a SOCK_SEQPACKET socket; docs/segment-format.md, "Folders". All of it
takes at most WAIT_SECS, even if the other side hangs.
"""

import os
import select
import time

from logshipper.errors import SpoolError, os_words
from logshipper.safe_text import safe
from logshipper.spool.captures import CaptureDirectory, encode_flat, is_job_id, open_capture

DEFAULT_PATH = "/run/logshipper/agent.sock"
WAIT_SECS = 2.0
_RETRY_SECS = 0.02
_MAX_ANSWER_BYTES = 16 << 10

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from logshipper.spool.place import Place


def socket_path() -> str:
    """Return the path of the node agent's socket, by $LOGSHIPPER_AGENT_SOCKET; "" for none."""
    return os.environ.get("LOGSHIPPER_AGENT_SOCKET", DEFAULT_PATH)


def ask(
    path: str, name: str, job_id: str | None, place: "Place | None" = None
) -> CaptureDirectory | None:
    """Return a folder of the node's spool for this process' run; None without an agent.

    job_id: a wish; place: by the launcher. The agent's answer counts. Raises SpoolError if the
    agent gives no folder.
    """
    if not path or not os.path.lexists(path):
        return None
    deadline = time.monotonic() + WAIT_SECS
    try:
        answer = _exchange(path, _request(name, job_id, place), deadline)
    except OSError as error:
        raise SpoolError(path, f"the node's agent can't be asked: {os_words(error)}") from None
    return _take(path, answer, name)


def _request(name: str, job_id: str | None, place: "Place | None") -> bytes:
    request: dict[str, str | int | None] = {
        "version": 1,
        "attempt": None,
        "task": None,
        "name": name,
        "job_id": job_id,
    }
    # a task may say this about its own job; the agent finds the scheduler's job
    if place is not None:
        request |= {"attempt": place.attempt, "task": place.task}
        if job_id is None or place.task is not None:
            request |= {"job_id": job_id or place.job_id, "step": place.step}
    request["apart"] = place is not None and place.apart and job_id is None
    return encode_flat(request)


def _exchange(path: str, request: bytes, deadline: float) -> bytes:
    """The answer's bytes. Raises SpoolError, OSError."""
    import _socket  # `socket` takes as long to import as half of `run`

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        connection.setblocking(False)
        _connect(connection, path, deadline)
        try:
            connection.send(request)
        except BrokenPipeError:
            pass  # refused before the request, as in a crowd: the answer has the reason
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise SpoolError(path, f"the node's agent didn't answer within {WAIT_SECS:g} s")
        return connection.recv(_MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _connect(connection: "socket", path: str, deadline: float) -> None:
    while True:
        try:
            connection.connect(path)
            return
        except BlockingIOError:  # too many wait to be accepted; nothing signals when there is room
            if time.monotonic() + _RETRY_SECS > deadline:
                reason = f"the node's agent took nobody within {WAIT_SECS:g} s"
                raise SpoolError(path, reason) from None
        time.sleep(_RETRY_SECS)


def _take(path: str, answer: bytes, name: str) -> CaptureDirectory:
    """Open the capture of an answer, and check all of it."""
    import json

    try:
        reply = json.loads(answer)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        reason = (
            "what answers isn't the node's agent" if answer else "the node's agent didn't answer"
        )
        raise SpoolError(path, reason)
    refusal = reply.get("error")
    if isinstance(refusal, str):
        raise SpoolError(path, f"the node's agent refuses: {safe(refusal[:1000])}")
    folder, job_id, attempt = reply.get("path"), reply.get("job_id"), reply.get("attempt")
    if not (
        isinstance(folder, str)
        and os.path.isabs(folder)
        and isinstance(job_id, str)
        and is_job_id(job_id)
        and type(attempt) is int
        and attempt >= 1
    ):
        raise SpoolError(path, "what answers isn't the node's agent, or a newer one")
    return open_capture(folder, job_id, attempt, name)
