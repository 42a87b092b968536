"""What a target has without saying so: its graphs are frozen and static, and it has no vendor."""

from pathlib import Path

import pytest

from compiler.errors import InternalError
from compiler.targets.base import Part, Target, missing
from compiler.targets.null import Null
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.graphs import BATCH, streaming


def test_the_first_part_with_a_cure_is_what_is_missing() -> None:
    assert missing(()) is None
    assert missing((Part("driver", "535"), Part("library", "2.0"))) is None
    parts = (Part("driver", "535"), Part("library", "none", "install it"), Part("licence", "expired", "buy one"))
    assert missing(parts) == "none"


@pytest.mark.parametrize("target", [Null(), OnnxStatic()])
def test_without_a_vendor_nothing_is_missing_and_nothing_is_compiled(target: Target, tmp_path: Path) -> None:
    assert (target.parts(), target.absent()) == ((), None)
    with pytest.raises(InternalError, match=f"expected a target with a compiler of its vendor, got {target.name}"):
        target.compile(tmp_path, tmp_path, tmp_path)


def test_the_passes_of_a_bucket_freeze_its_sizes() -> None:
    lowered = streaming()
    frozen = lowered
    for made in OnnxStatic().passes({BATCH: 4}):
        frozen = made.apply(frozen).lowered
    assert all(BATCH not in map(str, value.shape or ()) for value in frozen.model.graph.inputs)
