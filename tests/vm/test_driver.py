"""The machine's driver, run on this machine."""

import os
import pwd
import socket
import threading
from typing import Any

import pytest

from tests.vm.driver import TIMED_OUT, Decoder, encode, run, serve

USER = pwd.getpwuid(os.geteuid()).pw_name
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it becomes other users")


def request(script: str, **more: object) -> dict[str, object]:
    return {"id": 7, "script": script, "user": USER, **more}


def test_output_and_code() -> None:
    answer = run(request("echo out; echo err >&2; exit 5"))
    assert answer == {"id": 7, "code": 5, "output": "out\nerr\n"}
    assert run(request("kill -9 $$"))["code"] == 137
    assert run(request("printf '\\377'"))["output"] == "�"


def test_a_script_that_takes_too_long() -> None:
    answer = run(request("echo out; sleep 1000", secs=0.5))
    assert answer == {"id": 7, "code": TIMED_OUT, "output": "out\n"}


def test_over_a_port() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs.makefile("rwb", buffering=0) as port:
        theirs.close()
        thread = threading.Thread(target=serve, args=(port,))
        thread.start()
        decoder = Decoder()
        messages: list[dict[str, Any]] = []  # Any: JSON
        requests = encode(request("echo 1")) + b"half of a mess\n" + encode({"id": 8, "user": "?"})
        for at in range(len(requests)):
            ours.sendall(requests[at : at + 1])
        while len(messages) < 3:
            messages += decoder.feed(ours.recv(100))
        ours.shutdown(socket.SHUT_WR)
        thread.join(20.0)
    assert not thread.is_alive()
    assert len(messages[0]["boot"]) == 36
    answers = {message["id"]: message for message in messages[1:]}
    assert answers[7] == {"id": 7, "code": 0, "output": "1\n"}
    assert answers[8]["code"] == 127


def test_messages_in_pieces() -> None:
    decoder = Decoder()
    whole = encode({"id": 1, "output": "a\nb"}) + b"[1]\nno\n" + encode({"id": 2})
    assert [m["id"] for n in range(len(whole)) for m in decoder.feed(whole[n : n + 1])] == [1, 2]
