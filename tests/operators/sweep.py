"""Asks a vendor's toolchain about every idiom, in every precision, and says what is taken, refused and wrong."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.calib.noise import Noise
from compiler.errors import SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array, Lowered
from compiler.numerics.quantization.value_grids import grids_of_values
from compiler.numerics.quantization.whole_graph import write_on_grids
from tests.kit.calibration import with_streams
from tests.operators.idioms import Idiom
from tests.operators.vendors import TOGETHER, Answer, Vendor

LEAST_DB: Mapping[str, float] = {"float16": 40.0, "a16w8": 30.0, "a8w8": 15.0}
"""Below this an answer is wrong: what the precision itself costs a single operator is 10 dB less, at least."""

CALIBRATED_ON = 8
"""Feeds that ranges are taken from, the one that is compared among them."""


def sweep(vendor: Vendor, idioms: tuple[Idiom, ...], folder: Path) -> Iterator[tuple[Idiom, str, dict[str, Any]]]:
    """Yield, for every precision and idiom, a verdict: taken, refused or wrong.

    Args:
        vendor: whose toolchain is asked.
        idioms: what it is asked about.
        folder: an empty folder for graphs and answers.
    """
    for precision, bits in vendor.precisions.items():
        asked: list[tuple[Idiom, Mapping[str, Array]]] = []
        programs, place = [], folder / precision
        place.mkdir()
        for idiom in idioms:
            feed, model = idiom.feed(), idiom.model()
            try:
                written = model if bits is None else _on_grids(idiom, model, bits)
            except SlipwayError as error:
                yield idiom, precision, {"verdict": "refused", "why": error.message}
                continue
            ir.save(written, place / f"{idiom.name}.onnx")
            np.savez(place / f"{idiom.name}.feed.npz", **feed)  # type: ignore[arg-type]
            asked.append((idiom, run_model(model, feed)))
            programs.append((f"{idiom.name}.onnx", f"{idiom.name}.feed.npz"))
        for start in range(0, len(programs), TOGETHER):
            answers = vendor.ask(place, programs[start : start + TOGETHER])
            for (idiom, right), answer in zip(asked[start : start + TOGETHER], answers, strict=True):
                yield idiom, precision, verdict(answer, right["y"], LEAST_DB[precision])


def _on_grids(idiom: Idiom, model: ir.Model, bits: int) -> ir.Model:
    lowered = Lowered(idiom.name, graphs.clone(model), data_outputs=("y",))
    grids, _ = grids_of_values(with_streams(lowered, *([idiom.feed(seed)] for seed in range(CALIBRATED_ON))), bits)
    write_on_grids(lowered.model, "sweep", grids, bits)
    return lowered.model


def verdict(answer: Answer, right: Array, least_db: float) -> dict[str, Any]:
    """Return what an answer is worth: its SQNR in dB, one digit, or why there is none."""
    if answer.refused:
        return {"verdict": "refused", "why": answer.refused}
    noise = Noise()
    noise.add(answer.outputs["y"], right)
    sqnr_db = noise.sqnr_db
    if sqnr_db is None:
        return {"verdict": "taken"} if noise.noise == 0.0 else {"verdict": "wrong", "why": "numbers in place of zeros"}
    if not math.isfinite(sqnr_db):
        return {"verdict": "wrong", "why": "NaN or infinity"}
    return {"verdict": "taken" if sqnr_db >= least_db else "wrong", "sqnr_db": round(sqnr_db, 1)}
