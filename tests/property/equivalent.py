"""Mutants that cannot be told from the original, and why; by the key of the mutation."""

EQUIVALENT: dict[str, str] = {
    "checker/replay:Replay._lengths: seed % 2 == 0 -> seed % 2 != 0 in `rows[0][axis], rows[1][axis] = (short, long) "
    "if seed % 2 == 0 else (long, short)`": "which of two rows that are alike is the shorter one does not matter",
    "proof/rules/movement:_target: target.copied(axis) and axis < len(dims) -> target.copied(axis)": (
        "ONNX Runtime refuses a 0 behind the axes of what is reshaped: the graph does not run alone either"
    ),
    "proof/rules/kernel_windows:period: 1 -> 0 in `return (int(constant), math.gcd(*steps)) if constant.is_Integer "
    "else (0, 1)`": "a size is a whole number, and so are its other terms there: the constant is one, too",
    "proof/facts/meaning:_needs_of_number.meets: 0 -> 1 in `is_valid = array != 0 if divides else array >= first if "
    "first == 0 else array > 0` (2)": (
        "more is asked of the number, so the length from which on it is met is as long or longer"
    ),
    "proof/facts/meaning:_needs_of_size: alone + 1 -> alone in `shifted, first = alone + 1 - least, "
    "min(_shortest(case, name) for name in symbols_of(al...`": (
        "the size has to be one more than the least, which only refuses more"
    ),
    "proof/rules/contraction:sums_to_one: rank > 0 -> rank >= 0 in `return rank > 0 and axis_of(node, rank) == axis "
    "+ rank`": "a Softmax has an axis at least, as ONNX Runtime demands, and its shape is known where rules run",
    "proof/rules/microsoft:skip_normalization: 5 -> 6 in `_plain(case, range(2, 5))`": (
        "the operator has five operands, so the sixth is never there"
    ),
    "proof/padding/valid_slots:ValidSlots._shaped: 1 -> 0 in `if all(len(layout) == 1 for layout in placed.values()) "
    "and axis != rows_axis:`": "the mask gets its shape by the form for merged axes, which gives the same shape",
    "Clip: refused node accepted": "ONNX Runtime takes scalar bounds only: the refused node does not run alone either",
    "CC2: claimed pointwise": (
        "without the claim only numbers are joined, never along an axis of theirs, so the claim is true"
    ),
    "MV3: claimed pointwise": "only numbers move without the claim; they lie along no axis, so the claim is true",
    "PL: claimed pointwise": "neither operands nor outputs lie along a tracked axis, so the claim is true",
    "QT1: claimed pointwise": "padding in rows is refused, so the outputs lie along no tracked axis",
    "PL1: padding claimed to be no NaN": (
        "ONNX Runtime passes over NaN in MaxPool, so none comes out; the rule allows for runtimes that do not"
    ),
    "NM4: no size has to be 1": "the norm of no entries has a meaning: a row without any is as it is alone",
    "LN3: valid entries on the other side": "all places hold one value, so the valid ones may lie at either end",
    "LN2: claimed pointwise": "Shape reads no entry and its output lies along no axis, so the claim is true",
    "proof/rules/lookup:rows_of_table: 0 -> 1 in `if (at_zero(size) or 0) < 0:`": (
        "it stands for a size of 0, or none, at length 0; neither 0 nor 1 is below 0"
    ),
    "proof/rules/movement:_split: 1 -> 0 in `if common <= 1:`": (
        "what is split off has the size 1 then, and factors of size 1 are left out by `_pieces`"
    ),
    "passes/pad_axes:PadAxes.apply: max(after - before, 0) -> min(after - before, 0) in `return Outcome(done, "
    "matched=len(derivation.judged), rewritten=max(after - before, 0), ...`": (
        "the number of rewrites is told to readers; no graph and no proof depends on it"
    ),
    "proof/padding/lowerings/reduction:_true_count: 1 -> 0 in `if len(rows) <= 1:`": (
        "an axis that holds the batch alone is a merged axis of one factor, whose counts are repeated once"
    ),
    "proof/padding/lowerings/row_layout:spread_rows: len(layout) <= 1 -> len(layout) < 1 in `if len(layout) <= 1:`": (
        "an axis that holds the batch alone is a merged axis of one factor, which is repeated once"
    ),
    "proof/facts/index_map:_places: len(sizes) <= 1 -> len(sizes) < 1 in `if len(sizes) <= 1:`": (
        "the last axis is divided by its size like the others: a place on it is smaller, so the quotient is 0"
    ),
    "proof/rules/relative_shift:_Trials._run: 1 -> 0 in `if min(shape) < 1 or math.prod(shape) > ROOM:`": (
        "an operand without entries is left out behind it as well: `own.size == 0`"
    ),
    "proof/rules/relative_shift:_in_frames: 0 -> 1 in `return FRAMES - min((gap for gap in gaps if isinstance(gap, "
    "int)), default=0)`": "the proof has to hold for 0 frames as well then, which only refuses more",
    "proof/padding/lowerings/windows_and_borders:_with_ones: 1 -> 0 in `return insert.constant(np.insert(array, 1, "
    '[1, 1]), "per_axis")`': "two entries of 1 in front of the batch's scale, or behind it: that is 1, too",
    "proof/rules/row_values:_problem: op == 'Gather' and (symbolic_values_of(node.inputs[1]) is None or any((not "
    "isinstance(d... -> op == 'Gather'": "the text that is returned is a refusal, so it only refuses more",
    "proof/propagation/propagate:_Propagation.run: self.unknown.update(node.outputs) -> pass in "
    "`self.unknown.update(node.outputs)`": (
        "something is unknown only behind a refusal, where the pass has stopped; what goes on then only explains"
    ),
    "proof/rules/joining:_ended: at_zero(last.size) or 0 -> 0 in `if never_falls(last.size) and "
    "(at_zero(last.size) or 0) >= after:`": "the same entries are taken, with a need more, which only claims less",
    "proof/rules/reduction:arg_extreme: last and (not _is_apart(case, axis, largest=largest)) -> not _is_apart("
    "case, axis, largest=largest)": (
        "padding becomes a copy of the last valid entry, which never comes in front of it in a search for the first"
    ),
    "proof/facts/length_data:_lies_otherwise: fact.is_number or case.is_of_rows(operand) or (not fact.axes) or (not "
    "rows) "
    "-> case.is_of_rows(operand) or not fact.axes or (not rows)": (
        "a number lies along no axis, so it is left out as well"
    ),
    "proof/derivation/any_length:Places.times: factor > 0 -> factor >= 0 in `least = self.least * factor if factor > "
    "0 else "
    "-math.inf`": "0 times as much is 0: the bound from below becomes 0, too, or no number, which `max` passes over",
    "proof/rules/grids:gather_nd: not all(legal) and len(sizes) == 1 and all((data.axis(axis) is None for "
    "axis in looked_... -> not all(legal) and len(sizes) == 1": (
        "`stay_in_range` fills, too, where the size is no number, and clamped to a fixed size indices are legal"
    ),
    "proof/rules/joining:_Slicing.slice_axis: sliced.end is None or sliced.end == case.dims()[at] -> "
    "sliced.end is None": (
        "the whole axis goes through the general rule for cuts, which keeps all segments and claims no more"
    ),
    "proof/rules/joining:_begun: at_zero(first.size) or 0 -> at_zero(first.size) in `if "
    "never_falls(first.size) and (at_zero(first.size) or 0) >= before:`": (
        "a size that is no whole number at length 0 ends the run with an error, so nothing more is accepted"
    ),
    "proof/rules/length:created: case.batch is not None and symbol(case.batch) in symbols_of(size) -> "
    "case.batch is not None": (
        "of sizes without the batch only 0 is a multiple of it: an axis without entries, so what is said of them holds"
    ),
    "proof/rules/length:range_: isinstance(stated, int) or (not case.depends(stated) and is_known(case, "
    "stated)) -> isinstance(stated, int)": (
        "an axis that no length pads is laid out as one of which every slot is valid, and a start that moves is refused"
    ),
    "proof/rules/lookup:_counted_from_front: bound + 1 -> bound in `at_least.append(bound + 1)`": (
        "a bound has to be one more at the least length, which only refuses more"
    ),
    "proof/rules/lookup:gather: case.verdict('IX2', 'rows of a table by numbers', NUMBER) -> "
    "case.verdict('IX2', 'rows of a table by numbers', NUMBER, pointwise=True)": (
        "the output is a number, which lies along no axis, so the claim is true"
    ),
    "proof/rules/movement:_content: 1 -> 0 in `return math.gcd(*(int(each) if each.is_Integer else 1 for each "
    "in terms.values()))`": (
        "a size with a fraction in it has no quotient by what divides the rest, so the pieces never make up the output"
    ),
    "proof/rules/movement:restated: len(axis) != 1 -> len(axis) == 1 in `if undecided or len(axis) != 1 or "
    "not isinstance(axis[0], Frames) or len(axis[0].segmen...`": (
        "the size stays as the rule writes it, equal at every length; layouts that are spelled otherwise are refused"
    ),
    "proof/rules/movement:tile: times is None -> times is not None in `times = "
    "quotient(normal_form(after[axis]), normal_form(dim)) if times is None else times`": (
        "shape inference multiplies the size by the repeats: the quotient is the same, or none and it is refused"
    ),
    "proof/rules/resizing:_grow: parts[0].size + 1 -> parts[0].size in `least.append(parts[0].size + 1)`": (
        "what is left of a segment has to be one more at the least length, which only refuses more"
    ),
    "proof/rules/row_values:_problem: out is None or any((value is not None and shape is None for value, "
    "shape in zip(node.in... -> out is None": (
        "an operand of unknown rank is refused itself, and sizes picked to an unknown rank by the node that picks them"
    ),
    "proof/padding/lowerings/lookup:look_up_positions: 1 -> 0 in `if array is not None and "
    "array.ndim == 3 and axis_of_table == 1 and dims[0] == 1:`": (
        "no table is looked up along axis 0 by positions of each row, so the general form is written, "
        "which gives the same; more slots than rows are refused by the limit of the Slice"
    ),
    "proof/padding/lowerings/number:placed: graphs.dims_of(value) or () -> graphs.dims_of(value) in "
    "`dims = graphs.dims_of(value) or ()`": (
        "the plan of the value is made first, and refuses a value of unknown rank"
    ),
    "proof/padding/lowerings/row_layout:rows_of: fact.axis(axis) or () -> fact.axis(axis) in `return "
    "axis, fact.axis(axis) or ()`": ("the axis that holds the rows has a layout, with the rows in it"),
    "proof/propagation/propagate:_Propagation._judge: array_of(value) is None and _is_bounded(value, "
    "self.facts[value]) -> _is_bounded(value, self.facts[value])": (
        "the certificate gets a record of the node that makes a constant as well, which says what the "
        "records of its readers say of that operand"
    ),
    "proof/facts/lengths:smallest: found.is_number and never_falls(size) -> never_falls(size) in "
    "`return int(found) if found.is_number and never_falls(size) else 0`": (
        "int() of a size with other names in it is an error, so no slice is written"
    ),
    "proof/facts/lengths:_last_entries: isinstance(start, int) and start < 0 and (end == graphs.END) "
    "and _grows_behind(rows, be... -> isinstance(start, int) and start < 0 and _grows_behind(rows, "
    "behind) and (after[axis] =...": (
        "inputs have to be as long for more slices, and the sizes that are settled by it hold for inputs that are"
    ),
    "proof/facts/lengths:_last_entries: 0 -> 1 in `if isinstance(start, int) and start < 0 and end "
    "== graphs.END and _grows_behind(rows, b...`": (
        "x[0:] has the entries of x, and not Min(0, entries); that x has 0 entries or more would limit nothing"
    ),
    "proof/facts/lengths:_above_zero: each != 0 -> each == 0 in `parts = [each for each in "
    "number.args if each != 0]`": (
        "no limit is found, and no size settled by it: rules see Max(0, size), which is right at every "
        "length, as in attacks on nodes"
    ),
    "proof/facts/row_value_plans:_reshaped: left != right and isinstance(left, int) and "
    "isinstance(right, int) and (before if left ... -> left != right and isinstance(left, int) and "
    "isinstance(right, int)": (
        "where no axis is left to take from, the error of the empty list takes the place of the refusal"
    ),
    "proof/facts/length_data:own_layouts: case.batch is None -> case.batch is not None in `rows = "
    "None if case.batch is None else symbol(case.batch)`": (
        "of the batch a plan takes one entry per row before it looks at a layout, and the rows take the "
        "layout's place in facts; where plans ask for no layout, it only refuses more"
    ),
    "proof/facts/shift_invariant_values:_change: value is None or depth == 0 -> depth == 0 in `if "
    "value is None or depth == 0:`": (
        "the first value has axes, operands that are left out are passed over, and ONNX demands the others"
    ),
    "proof/facts/meaning:_needs_of_number.meets: 0 -> 1 in `is_valid = array != 0 if divides else array >= first if "
    "first == 0 else array > 0` (3)": (
        "more is asked of the number, so the length from which on it is met is as long or longer, or there is none; "
        "a number of an axis that is not padded cannot be written per row and is refused"
    ),
}
