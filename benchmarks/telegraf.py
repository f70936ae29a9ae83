"""Throughput and cost of the listener for measurements, at more datagrams than its limit: medians.

python -m benchmarks.telegraf [--rounds 5] [--secs 3] [--senders 2]

Sender processes send at full speed. Each row is a limit, `max_lines_per_sec`, next to a bare
recvfrom loop. CPU is that of the listener's process, parsing included.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple

from logshipper.telegraf.line_protocol import parse
from logshipper.telegraf.listener import LOOPBACK, Listener, Sender, open_sockets

LINE = b"training_loss,host=node1,experiment_id=10 iteration=151100i,value=0.07938926\n"
LIMITS = (20_000, 1_000_000)


class Taken(NamedTuple):
    """Datagrams a second. dropped: by the listener's own count; cpu: CPU seconds per second;
    each_us: CPU per received datagram."""

    sent: float
    received: float
    dropped: float
    cpu: float
    each_us: float


def _send(address: tuple[str, int], secs: float, total: "Synchronized[int]") -> None:
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    count, until = 0, time.monotonic() + secs
    while time.monotonic() < until:
        for _ in range(100):
            out.sendto(LINE, address)
        count += 100
    with total.get_lock():
        total.value += count


def _under_load(address: tuple[str, int], secs: float, senders: int) -> tuple[float, float, float]:
    """Return the number of sent datagrams, the seconds, and this process' CPU seconds meanwhile."""
    total: Synchronized[int] = multiprocessing.Value("q", 0)
    processes = [
        multiprocessing.Process(target=_send, args=(address, secs, total)) for _ in range(senders)
    ]
    begin, cpu = time.monotonic(), time.process_time()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return total.value, time.monotonic() - begin, time.process_time() - cpu


def listened(limit: int, secs: float, senders: int) -> Taken:
    sockets = open_sockets(LOOPBACK, 0)
    stop, stopping = os.pipe()
    kinds: Counter[str] = Counter()

    def take(sender: Sender, data: bytes, arrived_at: float) -> None:
        for measurement in parse(data):
            kinds["bad" if measurement.reason or sender.owner is None else "good"] += 1

    listener = Listener(sockets, take, stop, per_sec=limit)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    sent, took, cpu = _under_load((LOOPBACK, sockets.port), secs, senders)
    received, dropped = listener.counts["received"], listener.counts["overflow"]
    os.close(stopping)
    thread.join()
    listener.close()
    os.close(stop)
    return Taken(sent / took, received / took, dropped / took, cpu / took, 1e6 * cpu / received)


def bare(secs: float, senders: int) -> Taken:
    """Measure the peer: a loop that only reads."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind((LOOPBACK, 0))
    receiver.settimeout(0.2)
    ended = threading.Event()
    counts = [0]

    def read() -> None:
        while not ended.is_set():
            try:
                receiver.recvfrom(65536)
            except TimeoutError:
                continue
            counts[0] += 1

    thread = threading.Thread(target=read)
    thread.start()
    sent, took, cpu = _under_load(receiver.getsockname(), secs, senders)
    received = counts[0]
    ended.set()
    thread.join()
    receiver.close()
    return Taken(
        sent / took, received / took, (sent - received) / took, cpu / took, 1e6 * cpu / received
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=3.0)
    parser.add_argument("--senders", type=int, default=2)
    options = parser.parse_args()
    rivals: dict[str, Callable[[], Taken]] = {
        "recvfrom alone": lambda: bare(options.secs, options.senders)
    }
    for limit in LIMITS:
        rivals[f"at most {limit:,} a second"] = lambda limit=limit: listened(
            limit, options.secs, options.senders
        )  # type: ignore[misc]  # mypy and a lambda's default
    rounds = [{name: measure() for name, measure in rivals.items()} for _ in range(options.rounds)]
    print(
        "| | sent a second | received | dropped, as counted | CPU | \u00b5s each |\n|---|---|---|---|---|---|"
    )
    for name in rivals:
        sent, received, dropped, cpu, each_us = (
            statistics.median(getattr(result[name], field) for result in rounds)
            for field in Taken._fields
        )
        print(
            f"| {name} | {sent:,.0f} | {received:,.0f} | {dropped:,.0f} | {cpu:.2f} | {each_us:.1f} |"
        )


if __name__ == "__main__":
    main()
