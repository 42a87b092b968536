"""The registry of op rules: a table (domain, op) -> rule over facts about padded axes; a missing entry is a refusal.

A rule looks at one node and the facts of its inputs and answers with a verdict, or refuses. Several analyses read the
same table: padding asks what a node needs, state selection and position projection ask whether it is pointwise along an
axis.

Rule identifiers (`EW`, `MM`, `SM`, `NM`, `MV`, `CC`, `SL`, `LK`, `LN`) appear in certificates.
"""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from compiler.analysis.facts import Fact, Verdict
from compiler.analysis.rules.contraction import einsum, matmul
from compiler.analysis.rules.elementwise import (
    COMPARISONS,
    UNARY,
    UNBOUNDED,
    cast,
    comparison,
    nary,
    negation,
    power,
    unary,
    unbounded,
    where,
)
from compiler.analysis.rules.joining import concat, slice_
from compiler.analysis.rules.length import shape, trilu
from compiler.analysis.rules.movement import gather, reshape, split, squeeze, transpose, unsqueeze
from compiler.analysis.rules.normalization import layer_normalization, reduce, softmax

Rule = Callable[[ir.Node, Sequence[Fact]], Verdict]

RULES: dict[tuple[str, str], Rule] = {
    **{("", op): unary for op in UNARY},
    **{("", op): nary for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{("", op): unbounded for op in UNBOUNDED},
    **{("", op): reduce for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
    ("", "Pow"): power,
    ("", "Cast"): cast,
    ("", "MatMul"): matmul,
    ("", "Einsum"): einsum,
    ("", "Softmax"): softmax,
    ("", "LayerNormalization"): layer_normalization,
    ("", "Transpose"): transpose,
    ("", "Reshape"): reshape,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Squeeze"): squeeze,
    ("", "Concat"): concat,
    ("", "Slice"): slice_,
    ("", "Split"): split,
    ("", "Gather"): gather,
    ("", "Not"): negation,
    **{("", op): comparison for op in COMPARISONS},
    ("", "Where"): where,
    ("", "Trilu"): trilu,
    ("", "Shape"): shape,
}
"""The table. Whatever is not here is refused by name as soon as a padded axis reaches it."""
