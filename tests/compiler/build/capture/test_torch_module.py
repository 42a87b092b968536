"""Modules and files on their way in: what is written on the graph, and what is refused before it goes further."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules import transformer

from compiler.build.capture import torch_module
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.module_call import results_of
from compiler.errors import CheckpointError, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import RowAxis
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from tests.kit.models import tiny_asr
from tests.kit.models.tiny_graph import stream_model
from tests.kit.models.tiny_task import one_recording


def graph(inputs: Mapping[str, Input], outputs: tuple[str, ...], axes: Mapping[str, Axis] | None = None) -> Graph:
    return Graph(source=Source(factory="m:f"), inputs=dict(inputs), outputs=outputs, axes=dict(axes or {}))


BATCH = {"batch": Axis(buckets=(1, 2))}
ONE = graph({"x": Input(shape=("batch", 4), dtype="float32")}, ("y",), BATCH)


class Scaled(nn.Module):
    """A linear layer and a product: two lines of source."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return torch.sigmoid(x) * 3


def test_module_becomes_a_graph_with_the_recipes_names_and_the_models_lines() -> None:
    module = Scaled().eval()
    model = torch_module.capture_module(module, "net", ONE, ["x"])
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert graphs.dims_of(model.graph.inputs[0]) == (graphs.symbol("batch"), 4)
    sources = [graphs.source_of(node) for node in model.graph]
    assert all("test_torch_module.py:" in source for source in sources if source), "never a line of the framework's own"
    assert any("in forward of linear: x = self.linear(x)" in source for source in sources)
    assert "linear" in {graphs.scope_of(node) for node in model.graph}


class SharedName(nn.Module):
    """A buffer that is called as the exporter calls a quotient."""

    div: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("div", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return x / 3 + self.div


def test_a_buffer_and_a_value_of_one_name_are_told_apart() -> None:
    model = torch_module.capture_module(SharedName(), "net", ONE, ["x"])
    x = np.ones((2, 4), np.float32)
    assert np.allclose(open_session(graphs.serialized(model)).run(None, {"x": x})[0], x / 3 + np.arange(4))


# Checkpoints


def save(path: Path, **changes: Tensor | None) -> Path:
    tensors = {**Scaled().state_dict(), **{name.replace("__", "."): tensor for name, tensor in changes.items()}}
    safetensors.torch.save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    return path


def test_checkpoint_is_loaded(tmp_path: Path) -> None:
    module = Scaled()
    torch_module.load_checkpoint(module, save(tmp_path / "c.safetensors", linear__bias=torch.full((4,), 7.0)))
    assert module.linear.bias.tolist() == [7.0] * 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"linear__bias": None}, "got missing linear.bias;"),
        ({"other": torch.zeros(1)}, "got unexpected other;"),
        ({"linear__bias": torch.zeros(5)}, "got misshapen linear.bias [5] instead of [4];"),
        (
            {"linear__bias": None, "linear__weight": torch.zeros(4), "z": torch.zeros(1)},
            "got missing linear.bias; unexpected z; misshapen linear.weight [4] instead of [4, 4];",
        ),
        ({f"t{i}": torch.zeros(1) for i in range(8)}, "got unexpected t0, t1, t2, t3, t4 and 3 more;"),
        ({"linear__bias": torch.full((4,), torch.inf)}, "got NaN or infinity in linear.bias;"),
    ],
)
def test_checkpoint_of_another_model_is_refused_by_tensor(
    changes: dict[str, Tensor | None], words: str, tmp_path: Path
) -> None:
    module = Scaled()
    before = module.linear.weight.clone()
    with pytest.raises(CheckpointError) as caught:
        torch_module.load_checkpoint(module, save(tmp_path / "c.safetensors", **changes))
    assert words in str(caught.value)
    assert torch.equal(before, module.linear.weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_weights_of_another_type_are_converted_only_when_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    path = save(tmp_path / "c.safetensors", linear__bias=torch.ones(4, dtype=dtype))
    module = Scaled()
    before = module.linear.bias.clone()
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(CheckpointError, match=f"got linear.bias {kind} instead of float32; .* cast: true"):
        torch_module.load_checkpoint(module, path)
    assert torch.equal(before, module.linear.bias)
    torch_module.load_checkpoint(module, path, cast=True)
    assert module.linear.bias.tolist() == [1.0] * 4


class Inner(nn.Module):
    """Cannot be exported, one level below forward."""

    def pick(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x  # the value decides

    def forward(self, x: Tensor) -> Tensor:
        return self.pick(x)


def test_what_the_exporter_cannot_capture_shows_the_models_line() -> None:
    with pytest.raises(Refused, match=r"source .*test_torch_module.py:\d+ in pick") as caught:
        torch_module.capture_module(Inner(), "net", ONE, ["x"])
    assert caught.value.cure == torch_module.BRANCH_CURE


class Repeated(nn.Module):
    """Does something as often as a number says."""

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        for _ in range(int(count)):
            x = x + 1
        return x


def test_a_count_that_is_fed_is_told_how_to_be_fixed() -> None:
    inputs = {"x": Input(shape=(3, 4), dtype="float32"), "count": Input(shape=(), dtype="int64")}
    with pytest.raises(Refused, match=r"source .*test_torch_module.py:\d+ in forward") as caught:
        torch_module.capture_module(Repeated(), "net", graph(inputs, ("y",)), ["x", "count"])
    assert caught.value.cure == torch_module.OPEN_SIZE_CURE


class Centred(nn.Module):
    """Traced, but one of its nodes has no translation."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.arange(x.shape[0]) - (x.shape[0] - 1) / 2).unsqueeze(-1)


def test_what_the_exporter_cannot_translate_shows_the_models_line() -> None:
    with pytest.raises(Refused, match=r"source .*test_torch_module.py:\d+ in forward"):
        torch_module.capture_module(Centred(), "net", ONE, ["x"])


class Placed(nn.Module):
    """Has a table of as many rows as its window holds frames, and a chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1, 7, 4))

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([cache, x], 1)
        return (joined + self.table[:, : joined.shape[1]])[:, -2:], joined


def test_a_table_that_ends_with_the_window_is_captured() -> None:
    inputs = {
        "x": Input(shape=("batch", 2, 4), dtype="float32"),
        "cache": Input(shape=("batch", "cached", 4), dtype="float32", state="next"),
    }
    spec = graph(inputs, ("y", "next"), {**BATCH, "cached": Axis(window=5)})
    model = torch_module.capture_module(Placed().eval(), "net", spec, list(inputs))
    cache = graphs.inputs_named(model)["cache"]
    assert graphs.dims_of(cache) == (graphs.symbol("batch"), graphs.symbol("cached"), 4)


class Recurrent(nn.Module):
    """Of its frames the exporter notes as many as the example has."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.linear = nn.LSTM(4, 4, bidirectional=True, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.network(x)[0])  # type: ignore[no-any-return]


class Encoded(nn.Module):
    """One layer of torch's own encoder, under a causal mask of which nothing says that it is one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.stack([x, 2 * x, 3 * x], 1)
        encoded: Tensor = self.encoder(frames, mask=nn.Transformer.generate_square_subsequent_mask(frames.shape[1]))
        return encoded[:, 1]


def test_layers_of_attention_are_captured_operator_by_operator_and_under_their_masks() -> None:
    module, x = Encoded().eval(), torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    detect = transformer._detect_is_causal_mask
    model = torch_module.capture_module(module, "g", ONE, ["x"])
    assert any(node.op_type == "Softmax" for node in model.graph)
    assert torch.backends.mha.get_fastpath_enabled()
    assert transformer._detect_is_causal_mask is detect
    (got,) = open_session(graphs.serialized(model)).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_frames_behind_a_recurrence_are_those_of_any_utterance_although_another_was_unrolled_before() -> None:
    with torch.no_grad(), contextlib.suppress(Exception):
        torch.export.export(
            Recurrent().eval(), (torch.zeros(2, 3, 4),), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},)
        )
    axes = {**BATCH, "time": Axis(buckets=(5, 8), length_input="time_length")}
    spec = graph({"x": Input(shape=("batch", "time", 4), dtype="float32")}, ("y",), axes)
    model = torch_module.capture_module(Recurrent().eval(), "net", spec, ["x"])
    graphs.infer_shapes(model)
    assert graphs.dims_of(model.graph.outputs[0]) == (graphs.symbol("batch"), graphs.symbol("time"), 3)


def test_a_capture_leaves_the_environment_as_it_was() -> None:
    """The exporter sets variables of its own for a recurrence; later builds would be made from other surroundings."""
    before = dict(os.environ)
    spec = graph({"x": Input(shape=("batch", "time", 4), dtype="float32")}, ("y",), BATCH | {"time": Axis(fixed=5)})
    torch_module.capture_module(Recurrent().eval(), "net", spec, ["x"])
    assert dict(os.environ) == before


class ListOfCaches(torch.nn.Module):
    """Takes its caches as one list of pairs, and returns them as one."""

    def forward(
        self, x: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        return x * 2, [(key + x, value * x) for key, value in caches]


def listed(names: list[str]) -> Graph:
    states = {name: Input(shape=("batch", 4), dtype="float32", state=f"d{at}") for at, name in enumerate(names)}
    outputs = ("y", *(f"d{at}" for at in range(len(names))))
    return graph({"x": Input(shape=("batch", 4), dtype="float32"), **states}, outputs, BATCH)


def test_caches_in_a_list_are_named_by_their_places() -> None:
    spec = listed(["caches.0.0", "caches.0.1", "caches.1.0", "caches.1.1"])
    model = torch_module.capture_module(ListOfCaches(), "net", spec, list(spec.inputs))
    assert [value.name for value in model.graph.inputs] == list(spec.inputs)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((3, 4), dtype=np.float32) for name in spec.inputs}
    got = open_session(graphs.serialized(model)).run(list(spec.outputs), feeds)
    expected, _ = results_of(ListOfCaches(), list(feeds), list(feeds.values()))
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(one, other)


# ONNX files

STREAM = graph(
    {
        "features": Input(shape=("batch", 4, 8), dtype="float32"),
        "keys": Input(shape=("batch", "cache", 8), dtype="float32", state="next_keys"),
    },
    ("logits", "next_keys"),
    {"batch": Axis(buckets=(1, 2)), "cache": Axis(window=8)},
)


def read(tmp_path: Path, model: ir.Model, spec: Graph = STREAM) -> ir.Model:
    (tmp_path / "m.onnx").write_bytes(ir.to_proto(model).SerializeToString())
    return torch_module.capture_onnx(tmp_path / "m.onnx", "net", spec)


def test_file_keeps_its_nodes_and_takes_the_recipes_axes(tmp_path: Path) -> None:
    model = read(tmp_path, stream_model())
    assert graphs.dims_of(graphs.inputs_named(model)["keys"]) == (graphs.symbol("batch"), graphs.symbol("cache"), 8)
    assert all(node.name and "m.onnx node" in graphs.source_of(node) for node in model.graph)


def test_outputs_come_in_the_recipes_order_whatever_the_files(tmp_path: Path) -> None:
    model = stream_model()
    first, second = model.graph.outputs
    model.graph.outputs[0], model.graph.outputs[1] = second, first
    assert [value.name for value in read(tmp_path, model).graph.outputs] == ["logits", "next_keys"]


def test_sizes_that_the_file_notes_are_inferred_anew(tmp_path: Path) -> None:
    """They may be those of an earlier version, or true for one length alone."""
    model = stream_model()
    scores = next(node for node in model.graph if node.outputs[0].name == "scores").outputs[0]
    scores.shape, scores.dtype = ir.Shape([7, 64, "frames"]), ir.DataType.FLOAT
    read_model = read(tmp_path, model)
    found = next(node for node in read_model.graph if node.outputs[0].name == "scores").outputs[0]
    assert found.shape is None
    graphs.infer_shapes(read_model)
    assert "64" not in str(found.shape) and "7" not in str(found.shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "words"),
    [
        (("batch", 4), "float32", RecipeError, "expected features as float32 [batch, 4] in"),
        (("batch", 4, 9), "float32", RecipeError, "got float32 [batch, 4, 8]"),
        (("batch", 4, 8), "float64", RecipeError, "expected features as float64"),
        (("batch", "cache", 8), "float32", Refused, "the model fixes axis 'cache' of features to 4"),
    ],
)
def test_file_that_is_not_as_the_recipe_says_is_refused(
    shape: tuple[int | str, ...], dtype: str, kind: type[Exception], words: str, tmp_path: Path
) -> None:
    changed = Input.model_validate({"shape": shape, "dtype": dtype})
    spec = STREAM.model_copy(update={"inputs": {**STREAM.inputs, "features": changed}})
    with pytest.raises(kind) as caught:
        read(tmp_path, stream_model(), spec)
    assert words in str(caught.value)


def test_file_with_more_outputs_than_the_recipe_names_is_refused(tmp_path: Path) -> None:
    model = stream_model()
    weights = next(node for node in model.graph if node.op_type == "Softmax").outputs[0]
    weights.dtype, weights.shape = ir.DataType.FLOAT, ir.Shape(["batch", 4, "joined"])
    model.graph.outputs.append(weights)
    with pytest.raises(RecipeError, match="expected outputs"):
        read(tmp_path, model)


# The original


def test_original_starts_with_its_first_call_and_cuts_its_caches() -> None:
    spec = graph(
        {
            "features": Input(shape=("batch", 4, 8), dtype="float32"),
            **{
                f"cache_{i}": Input(shape=("batch", "cache", 8), dtype="float32", state=f"next_cache_{i}")
                for i in range(2)
            },
            **{
                f"context_{i}": Input(shape=("batch", 8, 2), dtype="float32", state=f"next_context_{i}")
                for i in range(2)
            },
        },
        ("logits", "next_cache_0", "next_cache_1", "next_context_0", "next_context_1"),
        {"batch": Axis(buckets=(1,)), "cache": Axis(window=8)},
    )
    later, first, chunks = tiny_asr.build().eval(), tiny_asr.build_first().eval(), one_recording(1, 5)
    with_first = list(torch_module.TorchReference(later, first, spec, states_of(spec)).run(chunks))
    without = list(torch_module.TorchReference(later, None, spec, states_of(spec)).run(chunks))
    assert [states["cache_0"].shape[1] for _, states in with_first] == [4, 8, 8, 8, 8]
    assert with_first[-1][0]["next_cache_0"].shape[1] == 12
    for (a, _), (b, _) in zip(with_first, without, strict=True):
        assert np.allclose(a["logits"], b["logits"], atol=1e-5)


class OneRow(torch.nn.Module):
    """Frames [4, 8] join a cache [frames, 8]; the answer has a 1 in front."""

    def forward(self, features: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined = torch.cat([cache, features], dim=0)
        return (features + joined.mean(0))[None], joined


def test_original_of_one_row_gets_and_gives_rows_in_front() -> None:
    spec = graph(
        {
            "features": Input(shape=("batch", 4, 8), dtype="float32", original=(4, 8)),
            "cache": Input(shape=("batch", "cache", 8), dtype="float32", state="next", original=("cache", 8)),
        },
        ("logits", "next"),
        {"batch": Axis(buckets=(1,)), "cache": Axis(window=8)},
    )
    places = [RowAxis("features", None), RowAxis("cache", None), RowAxis("logits", 0), RowAxis("next", None)]
    chunks = one_recording(1, 4)
    calls = list(torch_module.TorchReference(OneRow(), None, spec, states_of(spec), places).run(chunks))
    assert [states["cache"].shape for _, states in calls] == [(1, 4, 8), *[(1, 8, 8)] * 3]
    assert calls[-1][0]["next"].shape == (1, 12, 8)
    joined = np.concatenate([chunk["features"] for chunk in chunks[:2]], axis=1)
    assert np.allclose(calls[1][0]["logits"], chunks[1]["features"] + joined.mean(1), atol=1e-5)
    model = torch_module.capture_module(OneRow(), "net", spec, ["features", "cache"])
    assert [list(map(str, value.shape or ())) for value in model.graph.inputs] == [["4", "8"], ["cache", "8"]]


class ContextOfChunk(torch.nn.Module):
    """Keeps the newest frames of the chunk alone, which may have fewer than its context."""

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joined = torch.cat([context, x], 1)
        return joined[:, 2:] + joined[:, :-2], x[:, -2:]


def test_a_state_that_is_shorter_after_a_short_chunk_is_named() -> None:
    given = {
        "x": Input(shape=("batch", "chunk", 3), dtype="float32"),
        "context": Input(shape=("batch", 2, 3), dtype="float32", state="next"),
    }
    axes = {"batch": Axis(buckets=(1,)), "chunk": Axis(buckets=(4,), length_input="chunk_length")}
    spec = graph(given, ("y", "next"), axes)
    chunks = [{"x": np.ones((1, length, 3), np.float32)} for length in (4, 1)]
    with pytest.raises(Refused) as caught:
        list(torch_module.TorchReference(ContextOfChunk(), None, spec, states_of(spec)).run(chunks))
    assert caught.value.message == (
        "state 'context' goes in as [1, 2, 3] and comes back from 'next' as [1, 1, 3] in the call with x [1, 1, 3]"
    )


class Paired(nn.Module):
    """Compares its rows with a number."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 2:
            x = x + 1
        return x * 2


def test_an_axis_that_the_model_fixes_is_refused_with_its_line() -> None:
    with pytest.raises(Refused, match=r"source .*test_torch_module.py:\d+ in forward: if x.shape\[0\] == 2"):
        torch_module.capture_module(Paired(), "net", ONE, ["x"])


class Packed(nn.Module):
    """Packs its rows to their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        rows = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        answer, _ = self.gru(rows)
        return nn.utils.rnn.pad_packed_sequence(answer, batch_first=True)[0]


def test_packed_sequences_are_refused_with_their_line_and_what_to_drop() -> None:
    inputs = {
        "x": Input(shape=("batch", "time", 4), dtype="float32"),
        "lengths": Input(shape=("batch",), dtype="int64", length_of="time"),
    }
    axes = {**BATCH, "time": Axis(buckets=(8,), length_input="lengths")}
    with pytest.raises(Refused) as caught:
        torch_module.capture_module(Packed().eval(), "net", graph(inputs, ("y",), axes), list(inputs))
    assert "in Packed: rows = nn.utils.rnn.pack_padded_sequence(" in caught.value.place.source
    assert "drop pack_padded_sequence" in caught.value.cure
