"""What stands for engines: the runtime's padding and cutting around sessions of the compiler; what it records."""

import io
from pathlib import Path

import numpy as np

from compiler.build.bundle.engine_stand_in import EngineStandIns
from compiler.graph.runners.session import Session, open_session
from runtime_lite import Runtime
from runtime_lite.verify import verify_model
from tests.runtime_lite.engines import write_engine_bundle


def opened(path: Path) -> Session:
    session: Session = open_session(str(path))
    return session


def test_a_bundle_without_engines_runs_through_the_stand_ins(tmp_path: Path) -> None:
    stand_ins = EngineStandIns(opened)
    with Runtime() as runtime:
        comparisons = list(verify_model(runtime.load(write_engine_bundle(tmp_path / "b", built=False), stand_ins)))
    assert comparisons
    assert all(comparison.holds for comparison in comparisons)


def test_one_call_per_bucket_is_recorded_at_the_shapes_of_the_engine(tmp_path: Path) -> None:
    stand_ins = EngineStandIns(opened)
    with Runtime() as runtime:
        list(verify_model(runtime.load(write_engine_bundle(tmp_path / "b", built=False), stand_ins)))
    ((name, content),) = stand_ins.feeds({"plain": 0.5}).items()
    assert name == "plain"
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        assert float(arrays["tolerance"]) == 0.5
        for rows in (1, 4):
            bucket = f"batch={rows},frames=2"
            assert arrays[f"{bucket}/feed/x"].shape == (rows, 2, 2)
            assert arrays[f"{bucket}/output/y"].shape == (rows, 2, 2)
            session = opened(tmp_path / "b" / f"graphs/plain.batch{rows}.frames2.onnx")
            feeds = {each: arrays[f"{bucket}/feed/{each}"] for each in ("x", "shift")}
            np.testing.assert_array_equal(session.run(["y"], feeds)[0], arrays[f"{bucket}/output/y"])
