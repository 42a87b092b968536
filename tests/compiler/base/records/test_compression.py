"""compression: what a pass took out comes back from JSON as it was."""

import dataclasses
import json

from compiler.base.records.compression import Compression, Cut, Point, Training, compression_of

RECORD = Compression(
    (Cut("reduce", "m.py:3 in forward: x", 64, 48, 0.25, 31.5, 33.0, 28.1), Cut("other", "", 64, 64)),
    (Point(1.0, 300.0), Point(0.79, 28.1)),
    Point(0.8, 27.4),
    Training(((0, 0.31), (40, 0.12)), "nats", 12.5),
)


def test_records_survive_json() -> None:
    assert compression_of(json.loads(json.dumps(RECORD.to_json()))) == RECORD
    untrained = dataclasses.replace(RECORD, training=None)
    assert compression_of(json.loads(json.dumps(untrained.to_json()))) == untrained
