"""Whole utterances: every gate holds for a padded graph and fails for one whose rows or padding show."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.gates.buckets import BUCKETS
from compiler.build.verify.gates.invariance import INVARIANCE
from compiler.build.verify.gates.parity import PARITY
from compiler.build.verify.utterance_artefacts import UtteranceArtefacts
from compiler.errors import DataError, GateFailed
from compiler.graph import model as graphs
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.gates import ParityGate
from compiler.targets.base import Emitted
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.format.arrays import arrays_from_npz
from tests.compiler.graph.runners.test_padded_rows import dynamic, rows, runner
from tests.kit.graphs import copy_of, random_weights
from tests.kit.offline import offline
from tests.kit.shipped import shipped, silent

GATE = ParityGate(max_abs=1e-5, chained_steps=3)
SIZES = [{"batch": batch, "time": time} for batch in (1, 3) for time in (4, 8)]


def artifacts(folder: Path, lowered: Lowered, spoil: str = "") -> list[Emitted]:
    """Every bucket on disk; with `spoil`, the output is the mean over all rows, or has seen all slots."""
    found = []
    for sizes in SIZES:
        copy = Lowered("tiny", graphs.clone(lowered.model), batch_axis="batch", padded_axes=lowered.padded_axes)
        FreezeAxes(tuple(sizes.items())).apply(copy)
        if spoil:
            _spoil(copy.model, spoil)
        file = "_".join(map(str, sizes.values())) + ".onnx"
        (folder / file).write_bytes(ir.to_proto(copy.model).SerializeToString())
        found.append(Emitted(sizes, file, (), copy))
    return found


def _spoil(model: ir.Model, spoil: str) -> None:
    (value,) = model.graph.outputs
    insert = graphs.Inserter(model, "test")
    zero = insert.constant(np.array(0.0, np.float32), "none")
    seen, kept = (value, model.graph.inputs[0]) if spoil == "rows" else (model.graph.inputs[0], value)
    mean = insert.op("ReduceMean", [seen, insert.int64s(0 if spoil == "rows" else 1)], {"keepdims": 1}, name="mean")
    if spoil == "rows":
        kept = insert.op("Mul", [value, zero], name="kept")
    else:
        mean = insert.op("Mul", [mean, zero], name="weighted")
    spoiled = insert.op("Add", [kept, mean], name="spoiled")
    written = [node for node in model.graph if node.metadata_props.get(graphs.PASS_KEY) == "test"]
    graphs.take_over(model, value, spoiled, except_in=written)


def steps(*lengths: int) -> list[OriginalCall]:
    original = runner(dynamic())
    return [OriginalCall(feed, original.step(feed), {}) for feed in rows(*lengths)]


def artefacts(folder: Path, spoil: str = "", lengths: tuple[int, ...] = (3, 4, 7, 8)) -> UtteranceArtefacts:
    lowered = PadAxes().apply(dynamic()).lowered
    return UtteranceArtefacts(
        folder, lowered, artifacts(folder, lowered, spoil), GATE, steps(*lengths), OnnxStatic().open
    )


def test_a_padded_graph_holds_every_gate(tmp_path: Path) -> None:
    check = artefacts(tmp_path)
    (difference,) = check.differences(silent)
    assert difference.steps == 4 and difference.max_abs < 1e-6
    assert set(check.apart()) == {"batch=1,time=4", "batch=1,time=8", "batch=3,time=4", "batch=3,time=8"}
    assert all(found.calls == 2 for found in check.invariance().values())
    golden = arrays_from_npz(check.golden(), "golden", ValueError)  # type: ignore[arg-type]
    assert golden["step0000/feed/x"].shape == (1, 3, 4) and golden["step0003/output/y"].shape == (1, 4, 4)


def test_of_few_utterances_the_shortest_and_the_longest_are_compared(tmp_path: Path) -> None:
    check, seen = artefacts(tmp_path), list[tuple[int, int]]()
    (difference,) = check.differences(lambda *done: seen.append(done), 2)
    assert difference.steps == 2 and seen == [(1, 2), (2, 2)]
    assert sorted(check._answers) == [0, 3]
    assert check.differences(silent, 24) == check.differences(silent)


def test_rows_that_mix_are_found(tmp_path: Path) -> None:
    check = artefacts(tmp_path, "rows")
    with pytest.raises(GateFailed, match=r"verify batch=3,time=4.*expected y of every row as alone"):
        BUCKETS.run(shipped(tmp_path, check, check.artifacts), silent)


def test_padding_that_shows_is_found(tmp_path: Path) -> None:
    check = artefacts(tmp_path, "slots")
    with pytest.raises(GateFailed, match="expected y unchanged by NaN in padding, got other values"):
        INVARIANCE.run(shipped(tmp_path, check, check.artifacts), silent)


def test_parity_names_the_output(tmp_path: Path) -> None:
    check = artefacts(tmp_path)
    check.steps[2].outputs["y"][0, 0, 0] += 1
    with pytest.raises(GateFailed, match=r"stage verify.*tensor y.*got a difference of 1"):
        PARITY.run(shipped(tmp_path, check, check.artifacts), silent)


def test_a_bucket_that_no_utterance_fits_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fits into batch=1,time=4, got {'time': 5} as the shortest.*drop the bucket"):
        artefacts(tmp_path, lengths=(5, 8))


@pytest.mark.parametrize("alike", [True, False], ids=["one table", "a table per utterance"])
def test_an_input_that_all_rows_share_is_fed_once_for_rows_of_any_length(tmp_path: Path, alike: bool) -> None:
    text = (
        "(float[batch,time,4] x, float[time,4] v, float[4,4] w) => (float[p,q,r] y) { u = MatMul(v, w) y = Add(x, u) }"
    )
    origin = offline(text, random_weights({"w": (4, 4)}))
    graphs.infer_shapes(origin.model)
    rng = np.random.default_rng(5)
    table = rng.standard_normal((8, 4)).astype(np.float32)
    feeds = []
    for feed in rows(3, 4, 7, 8, 4):
        length = feed["x"].shape[1]
        own = table[:length] if alike else rng.standard_normal((length, 4)).astype(np.float32)
        feeds.append({**feed, "v": own})
    original = runner(origin)
    told = [OriginalCall(feed, original.step(feed), {}) for feed in feeds]
    lowered = PadAxes().apply(copy_of(origin)).lowered
    check = UtteranceArtefacts(tmp_path, lowered, artifacts(tmp_path, lowered), GATE, told, OnnxStatic().open)
    whole = shipped(tmp_path, check, check.artifacts)
    for gate in (PARITY, BUCKETS, INVARIANCE):
        assert all(finding.holds for finding in gate.run(whole, silent).findings)
