"""Imports TensorBoard's event files: scalars, texts and hyperparameters.

Each folder with event files is a run. Scalars of one step become a record. The files have
`Event` messages of tensorboard/compat/proto/event.proto in the framing of TFRecord.
"""

import json
import os
import struct
from collections.abc import Iterator

from logshipper_ingest.imports.protobuf_fields import (
    BrokenMessage,
    Message,
    message,
    messages,
    number,
    text,
)
from logshipper_ingest.imports.source_file import Unreadable
from logshipper_ingest.imports.tracked import TrackedSource, json_number
from logshipper_ingest.model.imported import ImportedJob, ImportedRecord, LogPiece

_LENGTH = struct.Struct("<QI")
_MAX_BYTES = 1 << 30  # of an event: larger ones are damage
_FLOAT = 1  # type of a tensor
_PACKED = struct.Struct("<f")


class TensorboardSource(TrackedSource):
    ORIGIN = "tensorboard"
    FILES = "events.out.tfevents.*"

    def _main_of(self, path: str) -> str:
        return os.path.dirname(path)

    def _read(
        self, paths: list[str], job: ImportedJob, changed_ns: int
    ) -> Iterator[ImportedRecord]:
        values: dict[str, str] = {}
        last_step, time_ns = -1, 0
        for event_ns, step, value in _values(paths):
            tag, plugin = text(value, 1), _plugin(value)
            if text(plugin, 1) == "hparams":
                job.details.setdefault("hparams", {}).update(_hparams(plugin))
                continue
            scalar = _scalar(value)
            if not scalar:
                continue
            if values and (step != last_step or tag in values):
                yield _record(last_step, time_ns, values)
                values = {}
            last_step, time_ns = step, event_ns
            values[tag] = scalar
        if values:
            yield _record(last_step, time_ns, values)

    def _log(self, paths: list[str]) -> Iterator[LogPiece]:
        for time_ns, step, value in _values(paths):
            if text(_plugin(value), 1) == "text":
                words = " ".join(
                    word.decode("utf-8", "replace")
                    for tensor in messages(value, 8)
                    for word in tensor.get(8, ())
                    if isinstance(word, bytes)
                )
                tag = text(value, 1).removesuffix("/text_summary")
                yield LogPiece(f"{tag}, step {step}: {words}\n".encode(), time_ns=time_ns)


def _values(paths: list[str]) -> Iterator[tuple[int, int, Message]]:
    """Yield times in ns, steps and `Summary.Value` messages; an incomplete last event waits."""
    for path in paths:
        with open(path, "rb") as file:
            while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
                size, _ = _LENGTH.unpack(head)
                data = file.read(min(size, _MAX_BYTES))
                if len(data) < size or len(file.read(4)) < 4:
                    break
                try:
                    event = message(data)
                    values = [
                        value for summary in messages(event, 5) for value in messages(summary, 1)
                    ]
                except BrokenMessage:
                    raise Unreadable(path, "is damaged, or no event file") from None
                for value in values:
                    yield int(number(event, 1) * 1e9), int(number(event, 2)), value


def _plugin(value: Message) -> Message:
    """Return `SummaryMetadata.PluginData`."""
    return next((data for meta in messages(value, 9) for data in messages(meta, 1)), {})


def _scalar(value: Message) -> str:
    """JSON of a number; "" for other summaries."""
    if 2 in value:
        return _short(number(value, 2))
    tensor = next(messages(value, 8), {})  # as TensorFlow 2 writes them
    packed = (tensor.get(4) or tensor.get(5) or [b""])[-1]
    is_float = text(_plugin(value), 1) == "scalars" and number(tensor, 1) == _FLOAT
    if not is_float or not isinstance(packed, bytes) or len(packed) < _PACKED.size:
        return ""
    return _short(_PACKED.unpack_from(packed)[0])


def _short(value: float) -> str:
    """The fewest digits that give the same number of 4 bytes."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    same = (text for text in texts if _PACKED.pack(float(text)) == _PACKED.pack(value))
    return json_number(float(next(same, str(value))))


def _record(step: int, time_ns: int, values: dict[str, str]) -> ImportedRecord:
    cells = [f'"step": {step}', *(f"{json.dumps(tag)}: {value}" for tag, value in values.items())]
    return ImportedRecord(time_ns, f"{{{', '.join(cells)}}}".encode())


def _hparams(plugin: Message) -> dict[str, object]:
    """Return hyperparameters of `HParamsPluginData.session_start_info`."""
    found: dict[str, object] = {}
    for data in messages(plugin, 2):
        for start in messages(data, 3):
            for pair in messages(start, 1):
                for value in messages(pair, 2):
                    kinds = {2: number(value, 2), 3: text(value, 3), 4: bool(number(value, 4))}
                    found[text(pair, 1)] = next(
                        (kinds[kind] for kind in kinds if kind in value), None
                    )
    return found
