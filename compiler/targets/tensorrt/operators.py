"""Checks operators, element types and limits against those that TensorRT's ONNX parser accepts.

The table follows the support matrix of the parser (`docs/operators.md` of onnx-tensorrt 10.0), with the operators and
the limits that came up to 10.15: STFT with 10.5. An operator without an entry is refused: nobody has said that it
works.
"""

from collections.abc import Callable, Iterator

import onnx
import onnx_ir as ir

from compiler.graph.model import array_of, attribute, int_attribute, is_op
from compiler.graph.operators.axes import axis_of, axis_operand
from compiler.graph.operators.traits import RECURRENCES
from compiler.proof.facts.seen_rows import infinite_constants
from compiler.targets.tensorrt.rule import Breach, DeviceLimits, Rule, every_node, is_inner

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})
NUMBERS = FLOATS | WHOLE
BOOL = frozenset({ir.DataType.BOOL})
BYTE = frozenset({ir.DataType.UINT8})
INT8 = frozenset({ir.DataType.INT8})
FLOAT = frozenset({ir.DataType.FLOAT})

Kinds = frozenset[ir.DataType]

OPERATORS: dict[Kinds, str] = {
    FLOATS: "Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv "
    "ConvTranspose Cos Cosh CumSum DeformConv Dropout Einsum Elu Erf Exp Floor Gemm "
    "GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization GRU Hardmax "
    "HardSigmoid HardSwish InstanceNormalization IsInf LayerNormalization LeakyRelu Log "
    "LogSoftmax LpNormalization LpPool LRN LSTM MatMul MaxPool MeanVarianceNormalization Mish "
    "NonMaxSuppression NonZero Pow PRelu QuantizeLinear RandomNormal RandomNormalLike "
    "RandomUniform RandomUniformLike Reciprocal Resize RMSNormalization RNN RoiAlign "
    "RotaryEmbedding Round Scan Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh "
    "ThresholdedRelu",
    NUMBERS: "Abs Add ArgMax ArgMin DepthToSpace Div Equal Gelu Greater GreaterOrEqual IsNaN Less "
    "LessOrEqual Max Mean Min Mod Mul Neg Pad Range ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu "
    "Scatter ScatterElements ScatterND Shrink Sign SpaceToDepth Sub Sum TensorScatter TopK",
    NUMBERS | BOOL: "Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements GatherND "
    "Identity If Loop OneHot Reshape ReverseSequence Shape Size Slice Split Squeeze Tile "
    "Transpose Trilu Unsqueeze Where",
    NUMBERS | BOOL | BYTE: "Cast CastLike",
    BOOL: "And Not Or Xor",
    INT8: "DequantizeLinear",
    FLOAT: "STFT",
}
"""Operators by the element types of their data."""

TYPES_BY_OPERATOR: dict[str, Kinds] = {name: kinds for kinds, names in OPERATORS.items() for name in names.split()}

DATA_OPERAND = {"Where": 1, "OneHot": 2}
"""Which operand holds the data, where it is not the first."""

MADE_BY_OPERATOR = frozenset({"Constant", "ConstantOfShape", "RandomNormal", "RandomUniform", "If", "Loop"})
"""Operators whose data are their outputs."""

SIZED_BY_DATA = frozenset({"NonMaxSuppression", "NonZero"})
"""Operators of the table whose number of results depends on their data."""

MINIMUM_VERSION = "10.9"
"""The oldest TensorRT whose names the builder knows; its parser takes everything up to opset 20."""

VERSION_BY_OPERATOR = dict.fromkeys(("RMSNormalization", "RotaryEmbedding", "TensorScatter"), "10.15")
"""Which TensorRT's parser takes a newer operator first."""

VERSION_BY_OPSET = {20: MINIMUM_VERSION, 24: "10.15", 25: "11.5"}
"""Which TensorRT documents opsets up to the key; what lies between two keys, no version in between is known to."""

MOST_K = 3840

REDUCTIONS = tuple(name for name in TYPES_BY_OPERATOR if name.startswith("Reduce"))

CONSTANT_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Squeeze", "Unsqueeze", *REDUCTIONS), (1,)),
    "Slice": (3,),
    "Pad": (3,),
    "OneHot": (1,),
    "STFT": (1, 2, 3),
}
"""Operands that the parser reads while it builds: axes, the depth of OneHot, step, window and length of frames."""


def needed_version(model: ir.Model) -> str:
    """Return the oldest TensorRT whose parser documents the opset and every operator of a linted graph."""
    opset = model.opset_imports.get("", 0)
    first = next(version for most, version in VERSION_BY_OPSET.items() if opset <= most)
    newer = (VERSION_BY_OPERATOR.get(node.op_type, first) for node in every_node(model))
    return max((first, *newer), key=lambda version: tuple(map(int, version.split("."))))


def _opset(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    version = model.opset_imports.get("", 0)
    if not 9 <= version <= limits.opset:
        yield Breach(
            f"expected opset 9 to {limits.opset} of the standard operators, got {version}",
            "export at a lower opset, or raise the target's option `opset` if the installed parser documents it",
        )


def _domain(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if node.domain not in ("", "ai.onnx"):
            yield Breach(
                f"expected a standard operator, got {node.domain}.{node.op_type}",
                "write it with standard operators; plugins are not shipped",
                node,
            )


def _operator(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if node.domain in ("", "ai.onnx") and node.op_type not in TYPES_BY_OPERATOR and node.op_type != "Attention":
            yield Breach(
                f"expected an operator that the parser takes, got {node.op_type}",
                "write it with operators of the support matrix",
                node,
            )


def _data_size(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield operators whose result sizes depend on data, for which TensorRT-RTX has no kernels."""
    for node in every_node(model):
        if node.domain in ("", "ai.onnx") and node.op_type in SIZED_BY_DATA:
            yield Breach(
                f"expected operators whose results have a known size, got {node.op_type}, whose data decides how many "
                "entries it gives",
                "hide entries with a mask, as Where(mask, x, 0) does, in place of selecting them",
                node,
            )


def _operand_type(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        allowed = TYPES_BY_OPERATOR.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        number = DATA_OPERAND.get(node.op_type, 0)
        if node.op_type in MADE_BY_OPERATOR:
            operands = list(node.outputs)
        else:
            operands = [value for value in node.inputs[number : number + 1] if value is not None]
        for value in operands:
            if allowed is not None and value.dtype in NUMBERS | BOOL and value.dtype not in allowed:
                names = ", ".join(sorted(kind.name for kind in allowed))
                is_lowered = value.dtype in FLOATS and ir.DataType.FLOAT in allowed
                yield Breach(
                    f"expected {node.op_type} over {names}, got {_kind(value)}",
                    _in_float32(node) if is_lowered else "put a Cast in front of it, where the values fit",
                    node,
                    value,
                )


def _attention(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if is_op(node, "Attention"):
            yield Breach(
                "expected MatMul, Softmax and MatMul, got the operator Attention, whose build fails where no fused "
                "kernel exists",
                "decompose it; primitive attention is fused where a kernel exists and runs everywhere",
                node,
            )


def _constant_operand(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        for at in CONSTANT_OPERANDS.get(node.op_type, ()):
            value = node.inputs[at] if len(node.inputs) > at else None
            if value is not None and array_of(value) is None:
                yield Breach(
                    f"expected operand {at} of {node.op_type} as a constant, got a computed value",
                    "fold it into an initializer",
                    node,
                    value,
                )


def _real_signal(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        signal = node.inputs[0] if is_op(node, "STFT") else None
        shape = signal.shape if signal is not None else None
        if shape is not None and len(shape) == 3 and shape[2] != 1:
            yield Breach(
                f"expected STFT of a real signal, whose shape ends with 1, got {shape}",
                "transform real and imaginary part alone, and add the results",
                node,
                signal,
            )


def _cumsum_axis(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if is_op(node, "CumSum") and array_of(axis_operand(node)) is None:
            yield Breach(
                "expected the axis of CumSum as a constant, got a computed value",
                "fold it into an initializer",
                node,
                node.inputs[1],
            )


def _topk_k(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        k = array_of(node.inputs[1]) if is_op(node, "TopK") and len(node.inputs) > 1 else None
        if k is not None and k.size and int(k.max()) >= MOST_K:
            yield Breach(
                f"expected TopK with K below {MOST_K}, got {int(k.max())}",
                "ask for fewer entries, or cut the axis first",
                node,
            )


def _topk_sorted(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if is_op(node, "TopK") and int_attribute(node, "sorted", 1) != 1:
            yield Breach("expected TopK with sorted=1, got sorted=0", "let it sort", node)


def _first_output_only(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield declared outputs beyond the first of operators that may have one; Dropout may declare unread ones."""
    for node in every_node(model):
        if not is_op(node, "LayerNormalization", "MaxPool", "Dropout"):
            continue
        for value in node.outputs[1:]:
            is_read = bool(value.uses()) or value.is_graph_output()
            if is_read or (value.name and node.op_type != "Dropout"):
                yield Breach(
                    f"expected {node.op_type} with one output, got {value.name} besides",
                    "compute it with other operators" if is_read else "drop it, as nothing reads it",
                    node,
                    value,
                )


def _scatter_reduction(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        how = attribute(node, "reduction")  # for ScatterND the parser refuses the attribute itself, whatever it says
        if (is_op(node, "ScatterND") and how is not None) or (
            is_op(node, "ScatterElements") and how not in (None, "none")
        ):
            cure = "drop the attribute" if how == "none" else "reduce before it scatters"
            yield Breach(f"expected {node.op_type} without reduction, got {how!r}", cure, node)


def _loop_length(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if not is_op(node, "Loop"):
            continue
        carried = max(len(node.inputs) - 2, 0)
        length = array_of(node.inputs[0]) if node.inputs[0] is not None else None
        if len(node.outputs) > carried and length is None:
            yield Breach(
                "expected a Loop that stacks outputs to have a constant number of trips, got a computed one",
                "unroll it, or carry the stacked values as a state of fixed size",
                node,
            )


def _loop_condition(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield loops whose condition the parser cannot handle: a network input, or none where the body reads it."""
    for node in every_node(model):
        if not is_op(node, "Loop"):
            continue
        condition, inside = node.inputs[1], node.attributes["body"].as_graph().inputs[1]
        if condition is None and inside.uses():
            got = "none"
        elif condition is not None and condition.is_graph_input() and condition.graph is model.graph:
            got = f"the input {condition.name}"
        else:
            continue
        yield Breach(
            f"expected the condition of a Loop as a constant or a computed value, got {got}",
            "give it a constant, or compute it from the input",
            node,
            condition,
        )


def _branches(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if not is_op(node, "If"):
            continue
        sides = [node.attributes[name].as_graph().outputs for name in ("then_branch", "else_branch")]
        for first, second in zip(*sides, strict=True):
            ranks = [None if value.shape is None else len(value.shape) for value in (first, second)]
            if first.name == second.name or None in ranks or ranks[0] != ranks[1]:
                yield Breach(
                    "expected outputs of both branches with different names and one known rank, got "
                    f"{first.name} of rank {ranks[0]} and {second.name} of rank {ranks[1]}",
                    "give the branches outputs of the same rank",
                    node,
                    first,
                )


def _rotary_positions(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        positions = node.inputs[3] if is_op(node, "RotaryEmbedding") and len(node.inputs) > 3 else None
        if positions is not None and positions.dtype != ir.DataType.INT64:
            yield Breach(f"expected position_ids of INT64, got {_kind(positions)}", "cast them", node, positions)


def _tensor_scatter(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if not is_op(node, "TensorScatter") or node.inputs[0] is None:
            continue
        shape = node.inputs[0].shape
        axis = axis_of(node, len(shape or ()))
        if shape is None or len(shape) != 4 or axis != 2:
            yield Breach(
                f"expected TensorScatter over 4 dimensions at axis -2, got {shape} at axis {axis}",
                "reshape the cache, or write it with Concat and Slice",
                node,
            )


def _recurrent(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if is_op(node, "LSTM", "GRU", "RNN"):
            for name in ("layout", "input_forget"):
                if int_attribute(node, name, 0) != 0:
                    yield Breach(f"expected {node.op_type} with {name}=0, got another", "export it so", node)


def _half_lengths(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield recurrences with lengths in half precision, where the importer mixes types."""
    for node in every_node(model):
        if not is_op(node, *RECURRENCES) or len(node.inputs) < 5 or node.inputs[4] is None:
            continue
        data = node.inputs[0]
        if data is not None and data.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            yield Breach(
                f"expected {node.op_type} with lengths over FLOAT, got {_kind(data)}",
                _in_float32(node),
                node,
                node.inputs[4],
            )


def _hidden_scores(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield softmaxes with infinite masks in half precision, at which the builder of TensorRT-RTX fails."""
    for node in every_node(model):
        scores = node.inputs[0] if is_op(node, "Softmax") else None
        if scores is None or scores.dtype not in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            continue
        for constant in infinite_constants(scores)[:1]:
            yield Breach(
                f"expected finite scores in half precision, got -inf of {constant.name}, as a row may see nothing",
                "let every row see something, as itself, or hide scores by a number such as -1e4",
                node,
                constant,
            )


def _dilated_pool(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        given = attribute(node, "dilations", ())
        if is_op(node, "AveragePool", "MaxPool", "LpPool") and isinstance(given, list | tuple) and set(given) - {1}:
            yield Breach(f"expected {node.op_type} without dilations, got {list(given)}", "slice the input", node)


def _same_types(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield operands of different types where the standard declares one type variable, and for both sides of Pow."""
    for node in every_node(model):
        for values in _operands_by_type(node, model.opset_imports.get("", 1)):
            kinds = {value.dtype for value in values if value.dtype is not None}
            if len(kinds) > 1:
                names = ", ".join(f"{value.name} {_kind(value)}" for value in values)
                yield Breach(
                    f"expected operands of one type, a strongly typed network casts nothing, got {names}",
                    "write the Cast",
                    node,
                    values[-1],
                )


def _operands_by_type(node: ir.Node, opset: int) -> Iterator[list[ir.Value]]:
    if is_op(node, "Pow"):
        yield [value for value in node.inputs if value is not None]
        return
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
        return
    try:
        formal = onnx.defs.get_schema(node.op_type, opset).inputs
    except onnx.defs.SchemaError:  # newer than the graph's opset
        return
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    groups: dict[str, list[ir.Value]] = {}
    for index, value in enumerate(node.inputs):
        if formal and value is not None:
            parameter = formal[min(index, len(formal) - 1)]
            if parameter.option != variadic or parameter.is_homogeneous:
                groups.setdefault(parameter.type_str, []).append(value)
    yield from groups.values()


def _inner_quantization(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        if is_op(node, "QuantizeLinear", "DequantizeLinear") and is_inner(model, node):
            yield Breach(
                f"expected {node.op_type} in the main graph, got it inside a loop or a branch",
                "keep what runs inside loops and branches in floating point",
                node,
            )


def _in_float32(node: ir.Node) -> str:
    """Return the cure for a node that half precision or bfloat16 does not support."""
    return f'keep it in float32: lower_precision: {{float32: ["op:{node.op_type}"]}}'


def _kind(value: ir.Value) -> str:
    return value.dtype.name if value.dtype is not None else "an unknown type"


_CHECKS: dict[str, Callable[[ir.Model, DeviceLimits], Iterator[Breach]]] = {
    "opset": _opset,
    "domain": _domain,
    "operator": _operator,
    "data-size": _data_size,
    "operand-type": _operand_type,
    "attention": _attention,
    "constant-operand": _constant_operand,
    "real-signal": _real_signal,
    "cumsum-axis": _cumsum_axis,
    "topk-k": _topk_k,
    "topk-sorted": _topk_sorted,
    "first-output": _first_output_only,
    "scatter-reduction": _scatter_reduction,
    "loop-length": _loop_length,
    "loop-condition": _loop_condition,
    "if-branches": _branches,
    "rotary-positions": _rotary_positions,
    "tensor-scatter": _tensor_scatter,
    "recurrent": _recurrent,
    "half-lengths": _half_lengths,
    "hidden-scores": _hidden_scores,
    "dilated-pool": _dilated_pool,
    "same-types": _same_types,
    "quantized-inner": _inner_quantization,
}

OPERATOR_RULES = tuple(Rule(name, check) for name, check in _CHECKS.items())
