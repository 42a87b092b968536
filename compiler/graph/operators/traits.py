"""Defines traits of ONNX operators, each as one list of operator names that other modules look up.

How an operator is proved, batched or simplified is no trait; that is in the tables operator -> rule.
"""

# Moves

VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Give their operand another shape; nothing moves."""

REARRANGING = VIEWS | {"Transpose"}
"""Give every entry of their operand once, in another shape or order."""

PICKING = REARRANGING | {
    "Expand", "Gather", "GatherElements", "GatherND", "Slice", "Split", "Tile",
}  # fmt: skip
"""Every entry of the result is one of the first operand."""

MOVING = PICKING | {"Concat", "Pad"}
"""Every entry of the result is one of an operand."""

SIZED_BY_OPERANDS = frozenset({"Expand", "Pad", "Reshape", "Resize", "Slice", "Split", "Tile", "TopK"})
"""Operands behind the first one say how many entries there are, and where."""

# What is made of no data

MAKING = frozenset({"Constant", "ConstantOfShape", "EyeLike", "Range"})
"""Make their result of attributes, sizes and bounds."""

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Draw numbers: no two nodes, and no two runs, agree."""

# Entry by entry

COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
BASIC_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
BITWISE = frozenset({"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
CASTS = frozenset({"Cast", "CastLike"})

BROADCASTING = (
    COMPARISONS
    | BASIC_ARITHMETIC
    | BITWISE
    | {"And", "Max", "Mean", "Min", "Mod", "Or", "PRelu", "Pow", "Sum", "Where", "Xor"}
)
"""Compute one entry of one entry of each of several operands."""

ACTIVATIONS = frozenset(
    {
        "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Sigmoid", "Softplus",
        "Softsign", "Swish", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip

ONE_OPERAND = ACTIVATIONS | {
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp",
    "Floor", "Identity", "IsInf", "IsNaN", "Log", "Neg", "Not", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt",
    "Tan",
}  # fmt: skip
"""Compute one entry of one entry of their only operand."""

ENTRYWISE = ONE_OPERAND | BROADCASTING | CASTS | {"Clip"}
"""Compute one entry of one entry of each operand; what else Clip and CastLike read is no data."""

OF_ALIKE_SHAPES = ENTRYWISE - {"CastLike"}
"""Of the same, those whose operands all broadcast; CastLike reads the type of one of any shape."""

OF_POSITIONS = (
    CASTS
    | BITWISE
    | COMPARISONS
    | BASIC_ARITHMETIC
    | {
        "Abs", "And", "BitwiseNot", "Ceil", "Clip", "Cos", "Erf", "Exp", "Floor", "Identity", "Log", "Max", "Min",
        "Mod", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Sum",
        "Tanh", "Where", "Xor",
    }
)  # fmt: skip
"""Those of them that lengths, positions and masks are computed with."""

# Over axes

REDUCTIONS = frozenset(
    {
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "ReduceSumSquare",
    }
)  # fmt: skip

GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"})
"""Reduce all axes behind the channels."""

CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv"})

SLIDING = CONVOLUTIONS | {"AveragePool", "LpPool", "MaxPool"}
"""Give an entry per place of a kernel that lies within the axis."""

RECURRENCES = frozenset({"GRU", "LSTM", "RNN"})

NEVER_EMPTY = RECURRENCES | {"Einsum", "InstanceNormalization"}
"""ONNX Runtime ends the process where data of these have an axis without entries."""

# Numbers

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Multiply real data by weights, their second operand."""

QUANTIZING = frozenset({"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})
"""Change between real numbers and codes."""

ROUNDING_NOTHING = MOVING | {
    "Abs", "Max", "Min", "Neg", "ReduceMax", "ReduceMin", "Relu", "Where",
}  # fmt: skip
"""Every number of the result, but for its sign and zero, is one of an operand: of any type it fits that type."""
