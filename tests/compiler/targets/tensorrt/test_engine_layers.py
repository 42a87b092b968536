"""The list of layers that a builder logs: what is read of a real one, and what is not read at all."""

import pytest

from compiler.targets.base import EngineLayer
from compiler.targets.tensorrt.engine_layers import layers_of
from tests.kit.rtx_library import layer_line, layer_list

SCALARS = (
    "{ Name: a_alpha, Dimensions: [], Strides: [], StrideOrder: [], Datatype: Float, Format: (Linear) f }, "
    "{ Name: a_beta, Dimensions: [1], Strides: [1], StrideOrder: [0], Datatype: Float, Format: (Linear) f }"
)

ATTENTION = (
    "Name: _gemm_mha_v2_myl0_3, LayerType: kgen, Inputs: [ { Name: q, Dimensions: [4,16,40], Strides: [40,160,1], "
    "StrideOrder: [1,2,0], Datatype: Half, Format: (Arbitrary) Format with stride order = [1,2,0] }, { Name: m, "
    "Dimensions: [1,1,1,144], Strides: [144,144,144,1], StrideOrder: [3,2,1,0], Datatype: Bool, Format: (Linear) Row "
    "major linear format }], Constants: [], Outputs: [ { Name: o, Dimensions: [4,16,40], Strides: [40,160,1], "
    "StrideOrder: [1,2,0], Datatype: Half, Format: (Arbitrary) Format with stride order = [1,2,0] }], TacticName: "
    "_gemm_mha_v2_0x5429, StreamId: 0, Metadata: [ONNX Layer: node_of_o]\x1f[ONNX Layer: node[of]_w]"
)
"""A fused attention, as TensorRT-RTX 1.7.1 logs it."""


def product(holds: str = "Int8", name: str = "node_a_myl0_1", kind: str = "gemm") -> str:
    """A product whose factors beside it are single numbers."""
    line = layer_line(name, kind, ("a", "d"), ("Int8",), (holds,), "Half")
    return line.replace("}], Outputs", f"}}, {SCALARS}], Outputs")


def test_types_nodes_and_weights_of_a_product_are_read() -> None:
    (layer,) = layers_of(layer_list(product())) or ()
    assert layer == EngineLayer(
        "node_a_myl0_1", frozenset({"a", "d"}), True, frozenset({"int8"}), ("int8",), frozenset({"float16"}), False
    )


def test_an_attention_of_several_nodes_reads_and_writes_what_the_log_says() -> None:
    (layer,) = layers_of(layer_list(ATTENTION)) or ()
    assert layer.multiplies and layer.nodes == {"node_of_o", "node[of]_w"}
    assert layer.reads == {"float16", "bool"} and layer.holds == () and layer.writes == {"float16"}


@pytest.mark.parametrize(
    ("name", "kind", "multiplies", "converts"),
    [
        ("node_conv_myl0_2", "correlation", True, False),
        ("__myl_FcCastAddSilu_myl0_9", "runtime_fusion", True, True),
        ("__myl_FcAdd_myl0_9", "runtime_fusion", True, False),
        ("__myl_AddReshMoveMulSum_myl0_24", "kgen", True, False),
        ("__myl_MulMinMaxRounCast_myl0_0", "kgen", False, True),
        ("__myl_ReshConcMoveEtc_myl0_4", "kgen", False, True),
        ("__myl_SlicMove_myl0_4", "kgen", False, False),
    ],
)
def test_the_name_of_a_fused_kernel_says_what_is_in_it(name: str, kind: str, multiplies: bool, converts: bool) -> None:
    (layer,) = layers_of(layer_list(product(name=name, kind=kind))) or ()
    assert (layer.multiplies, layer.converts) == (multiplies, converts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Layers:\n",
        "Schichten:\n" + product(),
        layer_list("Name: x, LayerKind: gemm"),
        layer_list(product(), "Layer 2 of 2"),
        layer_list(product().replace("[ONNX Layer: a]\x1f[ONNX Layer: d]", "a, d")),
        layer_list(product().replace("[ONNX Layer: a]\x1f[ONNX Layer: d]", "")),
        layer_list(product().replace("LayerType", "Kind")),
        layer_list(product().replace("Datatype: Int8", "Type: Int8")),
    ],
)
def test_a_list_of_another_form_is_not_read(text: str) -> None:
    assert layers_of(text) is None


def test_a_long_list_of_another_form_is_put_away_at_once() -> None:
    whole = "{ Name: t, Dimensions: [4,16], Strides: [16,1], StrideOrder: [1,0], Datatype: Half, Format: (Linear) f }"
    told = product().replace("Inputs: [", "Inputs: [" + f"{whole}, " * 400)
    (layer,) = layers_of(layer_list(told)) or ()
    assert layer.reads == {"float16", "int8"}
    assert layers_of(layer_list(told.replace("Datatype: Int8", "Type: Int8"))) is None
    assert layers_of(layer_list(told.replace("], Constants", ") Constants"))) is None
