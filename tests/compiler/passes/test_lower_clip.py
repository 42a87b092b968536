"""lower_clip: no Clip over whole numbers."""

import numpy as np
import pytest

from compiler.graph.stages import Array, Lowered
from compiler.passes.lower_clip import LowerClip
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse


def lowered(clip: str, kind: str = "int64", least: int = -2, most: int = 3) -> Lowered:
    dtype = {"int64": np.int64, "int32": np.int32, "float": np.float32}[kind]
    bounds: dict[str, Array] = {"least": np.array(least, dtype), "most": np.array(most, dtype)}
    used = {name: array for name, array in bounds.items() if name in clip}
    declared = "".join(f", {kind} {name}" for name in used)
    return Lowered("tiny", parse(f"({kind}[2,4] x{declared}) => ({kind}[2,4] y) {{ y = {clip} }}", used))


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(
    ("clip", "ops"),
    [
        ("Clip(x, least, most)", ["Max", "Min"]),
        ("Clip(x, least)", ["Max"]),
        ('Clip(x, "", most)', ["Min"]),
        ("Clip(x)", ["Identity"]),
    ],
)
def test_every_clip_over_whole_numbers_is_written_by_its_bounds(clip: str, ops: list[str], kind: str) -> None:
    outcome = verify_pass(LowerClip(), lowered(clip, kind), tolerance=0.0)
    assert outcome.rewritten == 1
    assert ops_of(outcome.lowered.model) == ops


def test_bounds_that_contradict_each_other_give_the_upper_one() -> None:
    verify_pass(LowerClip(), lowered("Clip(x, least, most)", least=3, most=-2), tolerance=0.0)


def test_over_floating_point_it_stays() -> None:
    verify_untouched(LowerClip(), lowered("Clip(x, least, most)", "float"))
