"""Imports runs of Weights & Biases that lie on this machine: history, configuration, summary and
console.

Each file run-ID.wandb is a run. It has `Record` messages of wandb/proto/wandb_internal.proto in the
framing of LevelDB's logs, whose blocks have 32 KiB.
"""

import json
import os
import struct
from collections.abc import Iterator

from logshipper.spool.segment import Stream
from logshipper_ingest.imports.plain_json import plain
from logshipper_ingest.imports.protobuf_fields import (
    BrokenMessage,
    Message,
    message,
    messages,
    number,
    text,
)
from logshipper_ingest.imports.source_file import Unreadable
from logshipper_ingest.imports.tracked import TrackedSource
from logshipper_ingest.model.imported import ImportedJob, ImportedRecord, LogPiece
from logshipper_ingest.model.job import Json

_FILE_HEAD = b":W&B"
_FILE_HEAD_BYTES, _BLOCK_BYTES = 7, 32 << 10
_HEAD = struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4
# fields of Record
_HISTORY, _SUMMARY, _OUTPUT, _CONFIG, _RAW_OUTPUT, _RUN, _EXIT = 2, 3, 4, 5, 13, 17, 18


class WandbSource(TrackedSource):
    ORIGIN = "wandb"
    FILES = "run-*.wandb"

    def _read(
        self, paths: list[str], job: ImportedJob, changed_ns: int
    ) -> Iterator[ImportedRecord]:
        time_ns = changed_ns
        for record in _records(paths[0]):
            for run in messages(record, _RUN):
                self._take_run(job, run)
            for config in messages(record, _CONFIG):
                _update(job.details.setdefault("config", {}), config)
            for summary in messages(record, _SUMMARY):
                _update(job.details.setdefault("summary", {}), summary)
            for end in messages(record, _EXIT):
                job.exit_code = int(number(end, 1)) & 255
            for history in messages(record, _HISTORY):
                values: Json = {}
                _update(values, history, is_flat=True)
                step, at = values.get("_step"), values.get("_timestamp")
                time_ns = int(at * 1e9) if isinstance(at, int | float) else time_ns
                values = {key: value for key, value in values.items() if key[:1] != "_"}
                if values:
                    values = {**({} if step is None else {"step": step}), **values}
                    yield ImportedRecord(time_ns, json.dumps(values).encode())

    def _take_run(self, job: ImportedJob, run: Message) -> None:
        job.name = self._name or text(run, 8) or job.name
        job.user, job.host, job.note = text(run, 2), text(run, 13), text(run, 9)
        tags = [tag.decode("utf-8", "replace") for tag in run.get(10, ()) if isinstance(tag, bytes)]
        job.tags = dict.fromkeys(tags, "")
        job.details |= {"project": text(run, 3), "run": text(run, 1), "group": text(run, 6)}
        for config in messages(run, 4):
            _update(job.details.setdefault("config", {}), config)

    def _log(self, paths: list[str]) -> Iterator[LogPiece]:
        for record in _records(paths[0]):
            for output in (*messages(record, _RAW_OUTPUT), *messages(record, _OUTPUT)):
                at = next(messages(output, 2), {})
                time_ns = int(number(at, 1)) * 10**9 + int(number(at, 2))
                stream = Stream.STDOUT if number(output, 1) else Stream.STDERR
                yield LogPiece(text(output, 3).encode(), stream, time_ns)


def _update(target: Json, update: Message, *, is_flat: bool = False) -> None:
    """Take the items of a history, summary or configuration. is_flat: nested keys as `a.b`."""
    for item in messages(update, 1):
        path = [key.decode("utf-8", "replace") for key in item.get(2, ()) if isinstance(key, bytes)]
        path = path or [text(item, 1)]
        value = _value(text(item, 16))
        if is_flat:
            target[".".join(path)] = value
        elif path[0] != "_wandb":
            place = target
            for key in path[:-1]:
                inner = place.get(key)
                place[key] = place = inner if isinstance(inner, dict) else {}
            place[path[-1]] = value


def _value(text: str) -> object:
    try:
        return plain(text, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _records(path: str) -> Iterator[Message]:
    """Yield whole records; an incomplete last one waits."""
    with open(path, "rb") as file:
        if file.read(_FILE_HEAD_BYTES)[:4] != _FILE_HEAD:
            raise Unreadable(path, "is no file of wandb")
        record = b""
        while True:
            room = _BLOCK_BYTES - file.tell() % _BLOCK_BYTES
            if room < _HEAD.size:
                file.seek(room, os.SEEK_CUR)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            _, size, kind = _HEAD.unpack(head)
            data = file.read(size)
            if len(data) < size:
                return
            record = data if kind in (_FULL, _FIRST) else record + data
            if kind in (_FULL, _LAST):
                try:
                    yield message(record)
                except BrokenMessage:
                    raise Unreadable(path, "is damaged") from None
