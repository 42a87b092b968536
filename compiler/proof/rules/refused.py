"""Lists operators that are always refused, by reason: random numbers, sequences, strings, losses and others."""

from compiler.graph.operators.traits import RANDOM
from compiler.proof.facts.registry import Table, named_refusal

DRAWN = ("draws random numbers, which are others in every run", "pass the numbers in as an input")
SEQUENCES = (
    "works on a sequence of tensors, whose sizes no layout describes",
    "use tensors: Split, Concat and Slice; simplify writes the pieces of a SplitToSequence of fixed size as slices",
)
OPTIONALS = ("works on a value that may be absent", "export the model for one case")
STRINGS = ("works on strings", "leave text to the caller and pass numbers in")
LOSSES = ("is a loss of training", "export the model for inference")
SELECTS = ("gives a result whose size depends on the data", "leave the selection to the caller")
FILES = ("reads an encoded file", "leave it to the caller and pass numbers in")
MATRICES = ("multiplies entries of whole matrices, padding among them", "compute it outside of the graph")

REFUSED = {
    DRAWN: sorted(RANDOM),
    SEQUENCES: (
        "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "SequenceLength", "SequenceMap", "SplitToSequence",
    ),
    OPTIONALS: ("Optional", "OptionalGetElement", "OptionalHasElement"),
    STRINGS: ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    LOSSES: ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    SELECTS: ("NonMaxSuppression",),
    FILES: ("ImageDecoder",),
    MATRICES: ("Det",),
}  # fmt: skip

TABLE: Table = {("", op): named_refusal(*why) for why, ops in REFUSED.items() for op in ops}
