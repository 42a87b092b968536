"""form_bench: the forms of a target on one graph, as candidates: what changes, what differs, what takes how long."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.build.search import form_bench
from compiler.build.search.form_bench import OPEN, VariantBench
from compiler.graph.runners.stream import OriginalCall
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.targets.base import Built, Target
from compiler.targets.static_graphs import Prepared, write_prepared
from tests.kit.formed import LegalStatic
from tests.kit.graphs import parse

NAMES = ("swap_operands", "refuse_all", "scale_operand.by_one", "round_operand")
BUCKETS = {"batch": (1, 2, 4)}


def lowered(text: str = "(float[batch,2] x, float[batch,2] z) => (float[batch,2] y) { y = Sub(x, z) }") -> Lowered:
    return Lowered("net", parse(text), batch_axis="batch", data_outputs=("y",))


def answers() -> list[OriginalCall]:
    numbers = np.random.default_rng(0).standard_normal((3, 2, 1, 2)).astype(np.float32)
    return [OriginalCall({"x": x, "z": z}, {"y": x - z}, {}) for x, z in numbers]


def bench(folder: Path, calls: Sequence[OriginalCall] | None = None) -> VariantBench:
    return VariantBench(LegalStatic(), lowered(), BUCKETS, folder, None if calls is None else lambda: calls)


def test_what_rounds_is_a_candidate_only_where_noise_can_be_measured_and_standard_forms_come_first(
    tmp_path: Path,
) -> None:
    assert [each.name for each in bench(tmp_path).candidates] == ["swap_operands", "scale_operand.by_one", "refuse_all"]
    assert bench(tmp_path).usual == ("swap_operands", "scale_operand.by_one")
    assert "round_operand" in bench(tmp_path, answers()).usual
    told = {each.name: each.rounds for each in bench(tmp_path, answers()).candidates}
    assert list(told) == ["swap_operands", "scale_operand.by_one", "round_operand", "refuse_all"]
    assert [name for name, rounds in told.items() if rounds] == ["round_operand"]


def test_a_form_that_refuses_changes_nothing(tmp_path: Path) -> None:
    measured = bench(tmp_path, answers())
    assert [measured.changes((), name) for name in NAMES] == [True, False, True, True]


def test_the_smallest_and_the_largest_bucket_are_run_in_turns(tmp_path: Path) -> None:
    found = bench(tmp_path).compare(("swap_operands",), (), 0.0)
    assert [each.sizes for each in found.buckets] == ["batch=1", "batch=4"]
    assert found.together.sizes == ""
    assert found.together.least <= found.together.median <= found.together.most
    assert len(found.saved_ms) == 2


def test_noise_is_that_of_the_output_with_most_to_the_original(tmp_path: Path) -> None:
    measured = bench(tmp_path, answers())
    assert measured.noise(()) == 0.0
    assert 1e-9 < measured.noise(("round_operand",)) < 1e-5
    assert measured.noise(("swap_operands",)) == pytest.approx(4.0), "a difference with the other sign"


def test_noise_of_whole_utterances_is_measured_too(tmp_path: Path) -> None:
    text = "(float[batch,time,2] x, int64[batch] n) => (float[batch,time,2] y) { y = Add(x, x) }"
    graph = Lowered(
        "net",
        parse(text),
        batch_axis="batch",
        data_outputs=("y",),
        padded_axes=(PaddedAxis("time", "n"),),
        is_padded=True,
        rows_independent=True,
    )
    feeds = np.random.default_rng(0).standard_normal((2, 1, 3, 2)).astype(np.float32)
    calls = [OriginalCall({"x": x}, {"y": x + x}, {}) for x in feeds]
    measured = VariantBench(LegalStatic(), graph, {"batch": (1, 2), "time": (4, 8)}, tmp_path, lambda: calls)
    assert measured.noise(()) == 0.0 < measured.noise(("round_operand",))


@pytest.mark.slow
def test_few_plans_are_open_at_a_time_and_what_was_kept_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def write(target: Target, prepared: Prepared) -> Built:
        written.append(target.forms)
        return write_prepared(target, prepared)

    monkeypatch.setattr(form_bench, "write_prepared", write)
    measured = bench(tmp_path)
    for name in (*NAMES[:3], *NAMES[:3]):
        measured.compare((name,), (), 0.0)
    assert written.count(()) == 1
    assert len(list(tmp_path.iterdir())) == OPEN
