"""Mutants that cannot be told from the original, and why; by the key of the mutation."""

EQUIVALENT: dict[str, str] = {
    "analysis/rules/microsoft:skip_normalization: 5 -> 6 in `_plain(case, range(2, 5))`": (
        "the operator has five operands, so the sixth is never there"
    ),
    "padding/forms_lookup:look_up_positions: 1 -> 0 in `if array is not None and array.ndim == 3 and at == 1:`": (
        "a table that is constant is read by the form for computed tables, which finds the same entries"
    ),
    "padding/places:Places._shaped: 1 -> 0 in `if all(len(each) == 1 for each in placed.values()) and axis != "
    "rows_axis:`": "the mask gets its shape by the form for merged axes, which gives the same shape",
    "Clip: refused node accepted": "ONNX Runtime takes scalar bounds only: the refused node does not run alone either",
}
