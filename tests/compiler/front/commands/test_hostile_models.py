"""Files that nobody would export: every command answers them with a sentence and an exit code, never a traceback."""

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from tests.compiler.front.commands.files import run

HEADER = '<ir_version: 10, opset_import: ["" : 20]> m '

TEXTS = {
    "no inputs": "() => (float[2] y) <float[2] w = {1, 2}> { y = Relu(w) }",
    "a number": "(float x) => (float y) { y = Relu(x) }",
    "no entries": "(float[0] x) => (float[0] y) { y = Relu(x) }",
    "an input that is read by nobody": "(float[2] x, float[n] z) => (float[2] y) { y = Relu(x) }",
    "sizes that are words of the language": "(float[class, import] x) => (float[class, import] y) { y = Relu(x) }",
    "states alone": "(float[1,4] h) => (float[1,4] next_h) { next_h = Relu(h) }",
    "gone": "(float[batch,4] x, float[batch,5] z) => (float[4,5] y) { t = Transpose(x) y = MatMul(t, z) }",
    "a string": "(string[2] x) => (string[2] y) { y = Identity(x) }",
    "two": "(float[1,n] past, float[1,n] old) => (float[1,m] present) { present = Concat<axis = 1>(past, old) }",
}  # fmt: skip


def model(text: str) -> onnx.ModelProto:
    return ir.serde.serialize_model(ir.from_onnx_text(HEADER + text))


def write_all(folder: Path) -> list[Path]:
    """The graphs above, and files that are damaged or lie about themselves."""
    protos = {name: model(text) for name, text in TEXTS.items()}
    protos["long names"] = model(TEXTS["states alone"])
    for part in (protos["long names"].graph.input[0], protos["long names"].graph.node[0]):
        part.name = "x" * 3000
    protos["long names"].graph.node[0].input[0] = "x" * 3000
    protos["a size below zero"] = model(TEXTS["no entries"])
    protos["a size below zero"].graph.input[0].type.tensor_type.shape.dim[0].dim_value = -3
    protos["a size without end"] = model(TEXTS["no entries"])
    protos["a size without end"].graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62
    protos["a size that is a sum"] = model(TEXTS["no entries"])
    protos["a size that is a sum"].graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n*n - 1"
    protos["no graph"] = onnx.ModelProto(ir_version=10)
    contents = {name: proto.SerializeToString() for name, proto in protos.items()}
    contents |= {"cut off": contents["two"][:-30], "empty": b"", "text": b"not a model\n" * 50}
    paths = []
    for number, content in enumerate(contents.values()):
        paths.append(folder / f"m{number}.onnx")
        paths[-1].write_bytes(content)
    return paths


@pytest.mark.parametrize("command", ["init", "run", "simplify", "bench"])
def test_no_file_ends_in_a_traceback(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for path in write_all(tmp_path):
        more = {"init": [], "run": [path.name], "simplify": [f"out_{path.name}"], "bench": ["--calls", "2"]}[command]
        code, out, err = run(capsys, command, path.name, *more)
        if command == "init" and code == 0:
            code, _, err = run(capsys, "check", path.with_suffix(".yaml").name)
        if code not in (0, 2, 3) or "Traceback" in out + err:
            wrong.append(f"{path.name}: {code}: {err}")
    assert wrong == []
