"""A model repository from a bundle: what is in it, that it needs nothing else, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_lite import BadInput, BundleRefused, read_bundle, write_tar
from runtime_lite.format.manifest import DTYPES, Tensor
from runtime_lite.hosting.triton_repository import TYPES, _tensor, write_repository
from tests.runtime_lite.bundles import write_double_bundle, write_ragged_bundle, write_streaming_bundle
from tests.runtime_lite.voice_bundle import write_voice_bundle

STREAMING = """\
name: "tiny"
backend: "python"
max_batch_size: 0
input [{ name: "x" data_type: TYPE_FP32 dims: [-1, 3, 2] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [-1, 3, 2] }]
instance_group [{ kind: KIND_CPU count: 1 }]
parameters { key: "graph" value: { string_value: "streaming" } }
parameters { key: "threads" value: { string_value: "1" } }
parameters { key: "workers" value: { string_value: "2" } }
parameters { key: "max_streams" value: { string_value: "1024" } }
parameters { key: "idle_s" value: { string_value: "60.0" } }
parameters { key: "parts" value: { string_value: "" } }
"""

VOICE = """\
name: "tiny_voice"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [{ name: "text" data_type: TYPE_INT64 dims: [-1, -1] }]
input [{ name: "tokens" data_type: TYPE_INT64 dims: [-1, -1] optional: true }]
output [{ name: "sound" data_type: TYPE_FP32 dims: [-1] }]
"""

RECORDING = """\
name: "tiny_recording"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [{ name: "x" data_type: TYPE_FP32 dims: [-1, -1, 3, 2] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [-1, 3, 2] }]
"""


SERVER = '''
"""What a server does with a model: the folder of the model is all that it has of ours."""
import json, sys
import importlib.util
from pathlib import Path

model, stand_in = sys.argv[1:]
spec = importlib.util.spec_from_file_location("stand_in", stand_in)
spec.loader.exec_module(found := importlib.util.module_from_spec(spec))
sys.modules["triton_python_backend_utils"] = found.module()
spec = importlib.util.spec_from_file_location("model", model + "/1/model.py")
spec.loader.exec_module(loaded := importlib.util.module_from_spec(spec))
served = loaded.TritonPythonModel()
served.initialize(found.arguments_of(Path(model)))
import numpy as np
request = found.Request({"x": np.ones((1, 3, 2), np.float32)}, 1, found.START | found.END)
served.execute([request])
assert request.answered.wait(300)
served.finalize()
assert sys.modules["runtime_lite"].__file__.startswith(model)
assert not {"onnx", "onnx_ir", "torch", "compiler"} & set(sys.modules)
print(request.responses[0].outputs["y"].shape)
'''


def test_what_has_many_answers_is_a_decoupled_model(tmp_path: Path) -> None:
    *graphs, voice = write_repository(write_voice_bundle(tmp_path / "voice"), tmp_path / "models")
    assert [model.name for model in graphs] == ["tiny_codec", "tiny_step"]
    assert (voice / "config.pbtxt").read_text().startswith(VOICE)
    streaming = write_streaming_bundle(tmp_path / "streaming")
    model, recording = write_repository(streaming, tmp_path / "models", recordings=True)
    assert (recording / "config.pbtxt").read_text().startswith(RECORDING)
    assert "triton_parts" in (recording / "1" / "model.py").read_text()
    assert "triton_backend" in (model / "1" / "model.py").read_text()


def test_a_streaming_graph_is_one_model(tmp_path: Path) -> None:
    (model,) = write_repository(write_streaming_bundle(tmp_path / "bundle"), tmp_path / "models", workers=2)
    assert model == tmp_path / "models" / "tiny"
    assert (model / "config.pbtxt").read_text() == STREAMING
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]


def test_the_folder_of_a_model_is_all_that_it_needs(tmp_path: Path) -> None:
    (model,) = write_repository(write_streaming_bundle(tmp_path / "bundle"), tmp_path / "models")
    stand_in = tmp_path / "stand_in.py"
    text = Path(__file__).with_name("triton_stand_in.py").read_text()
    stand_in.write_text(text.replace("from runtime_lite.format.arrays import Array", "Array = object"))
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, "-I", "server.py", str(model), str(stand_in)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "(1, 3, 2)\n"), done.stderr


def test_every_graph_of_a_bundle_is_a_model_and_sizes_that_are_open_are_free(tmp_path: Path) -> None:
    double = write_repository(write_double_bundle(tmp_path / "double"), tmp_path / "models")
    assert [model.name for model in double] == ["tiny_plain", "tiny_streaming"]
    (ragged,) = write_repository(write_ragged_bundle(tmp_path / "ragged"), tmp_path / "models", name="ragged")
    config = (ragged / "config.pbtxt").read_text()
    assert 'output [{ name: "y" data_type: TYPE_FP32 dims: [-1, -1, 2] }]' in config
    assert 'name: "time_length"' not in config


def test_every_type_of_a_manifest_has_a_name_and_a_scalar_a_shape() -> None:
    assert set(TYPES) == set(DTYPES)
    text = _tensor(Tensor("offset", (), "int64", "data"))
    assert text == '{ name: "offset" data_type: TYPE_INT64 dims: [1] reshape: { shape: [] } }'


@pytest.mark.parametrize("option", [{"name": "../away"}, {"name": ""}, {"workers": 0}, {"max_streams": 10**9}])
def test_what_is_wrong_writes_nothing(tmp_path: Path, option: dict[str, object]) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")
    with pytest.raises(BadInput):
        write_repository(bundle, tmp_path / "models", **option)  # type: ignore[arg-type]
    assert not (tmp_path / "models").exists()


def test_a_model_that_is_there_is_left_alone_and_a_broken_bundle_is_refused(tmp_path: Path) -> None:
    bundle = write_streaming_bundle(tmp_path / "bundle")
    (model,) = write_repository(bundle, tmp_path / "models")
    before = sorted(path for path in model.rglob("*"))
    with pytest.raises(BadInput, match="expected no model of this name, got one; name the new one by --name"):
        write_repository(bundle, tmp_path / "models")
    (bundle / "graphs/weights.bin").write_bytes(b"")
    with pytest.raises(BundleRefused):
        write_repository(bundle, tmp_path / "models", name="other")
    assert sorted(path for path in model.rglob("*")) == before
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]


@pytest.mark.parametrize("name", ["elsewhere/PWNED", "../away", "..", ".hidden", "", "a" * 65, "a b"])
@pytest.mark.parametrize("whose", ["bundle", "graph"])
def test_a_bundle_whose_name_is_no_folder_here_is_refused(tmp_path: Path, name: str, whose: str) -> None:
    bundle = write_double_bundle(tmp_path / "bundle")
    manifest = json.loads((bundle / "manifest.json").read_text())
    if whose == "bundle":
        manifest["name"] = name
    else:
        manifest["graphs"][name] = manifest["graphs"].pop("plain")
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleRefused, match=r"expected a (name of letters, digits and '_'|printable text)"):
        write_repository(bundle, tmp_path / "models")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_model_has_the_files_of_its_bundle(tmp_path: Path) -> None:
    """Those that were checked, of a `.tar`, too."""
    bundle = write_streaming_bundle(tmp_path / "bundle")
    write_tar(bundle, tmp_path / "bundle.tar")
    for path in (bundle, tmp_path / "bundle.tar"):
        (model,) = write_repository(path, tmp_path / "models", name=path.name)
        assert (model / "1/bundle/manifest.json").read_bytes() == (bundle / "manifest.json").read_bytes()
        read_bundle(model / "1/bundle").close()
