"""Stands for Arm's reference model: executes what the stand-in for the worker has written, with torch.

`STAND_IN_ETHOS_U` says what is wrong with it: `wrong` numbers, or a graph that is `invalid`.
"""

import io
import json
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

FAULT = os.environ.get("STAND_IN_ETHOS_U", "")


class GraphStatus:
    """What the model says of a graph."""

    TOSA_VALID = "TOSA_VALID"
    TOSA_ERROR = "TOSA_ERROR"


def run(tosa: bytes, inputs: Sequence[Any]) -> tuple[list[Any], str]:
    """Compute integers from integers."""
    if FAULT == "invalid":
        return [], GraphStatus.TOSA_ERROR
    with zipfile.ZipFile(io.BytesIO(tosa)) as file:
        border, program = json.loads(file.read("border.json")), file.read("module.pt2")
    module = torch.export.load(io.BytesIO(program)).module()
    numbers = [
        torch.from_numpy((array.astype(np.float32) - each["zero_point"]) * np.float32(each["scale"]))
        for array, each in zip(inputs, border["inputs"], strict=True)
    ]
    shift = 4000 if FAULT == "wrong" else 0
    return [
        _integers(array.detach().numpy(), each, shift)
        for array, each in zip(module(*numbers), border["outputs"], strict=True)
    ], GraphStatus.TOSA_VALID


def _integers(array: Any, border: dict[str, Any], shift: int) -> Any:
    bounds = np.iinfo(border["dtype"])
    steps = np.round(array / border["scale"]) + border["zero_point"] + shift
    return np.clip(steps, bounds.min, bounds.max).astype(border["dtype"])
