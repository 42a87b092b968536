"""precision_records: what a pass says comes back from JSON as it was."""

import json

from compiler.base.records.precision import Pin, TensorRange, from_json, to_json


def test_records_survive_json() -> None:
    records = (
        Pin(
            "exp_3",
            "Exp",
            "its output reaches 90112, above 65504",
            "exp_3_out",
            90112.0,
            "m.py:3 in forward",
            2.0,
            "dB",
        ),
        Pin("softmax", "Softmax", "asked for in the recipe"),
        TensorRange("x", -1.0, 2.5, "percentile 99.9", 0.001, 4),
    )
    assert from_json(json.loads(json.dumps(to_json(records)))) == records
