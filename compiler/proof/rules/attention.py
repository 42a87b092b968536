"""Proves how padding and batching act on RotaryEmbedding, and refuses Attention that no pass has decomposed."""

from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.facts.transfer import stored


def rotary(case: Case) -> Verdict:
    """Judge RotaryEmbedding: every frame is rotated by the angles of its position, or by its own angles."""
    return rotated(case, (1, 2), 3 if case.has(3) else None)


def rotated(case: Case, angles: tuple[int, int], positions: int | None) -> Verdict:
    """Judge a rotation of frames of the first operand, [batch, heads, time, size] or [batch, time, heads * size].

    Args:
        case: the node.
        angles: the operands of cosines and sines: tables [positions, half], or [batch, time, half] without positions.
        positions: the operand of positions [batch, time], or None.

    Raises:
        Refused: frames and angles are not laid out alike, positions follow from the slot, or a table is padded.
    """
    frames = case.rank() - 2 if case.rank() == 4 else 1
    axes = case.fact().tracked
    expected = {own_axis: axes[data_axis] for own_axis, data_axis in ((0, 0), (1, frames)) if data_axis in axes}
    of_frames = angles if positions is None else (positions,)
    if positions is not None:
        _check_tables(case, angles, positions)
    if set(axes) - {0, frames} or any(case.fact(operand).tracked != expected for operand in of_frames):
        raise refuse(f"{case.op} at positions of another layout", "give a position for each frame")
    if positions is not None:
        rows = case.dims(angles[0])[0]
        assert isinstance(rows, int)
        case.clamp(positions, 0, rows - 1)
    fact, dtype = case.fact(), case.dtype()

    def content(region: Region) -> Interval:
        of_angle = frozenset({1} if frames in region and positions is None else ())
        turn = sum(case.fact(operand).content(of_angle).magnitude for operand in angles)
        entry = fact.content(region)
        if not entry.is_finite or not turn < float("inf"):
            return ANYTHING
        held = stored(iv.bounded(entry.magnitude * max(turn, 1.0)), dtype)
        return held if held.is_finite else ANYTHING

    return case.verdict("EW2", "every frame by itself", case.output(axes, content), pointwise=True)


def _check_tables(case: Case, angles: tuple[int, int], positions: int) -> None:
    """Refuse tables that differ from row to row, and positions without an entry per frame."""
    for operand in angles:
        if not case.fact(operand).is_plain:
            raise refuse(f"{case.op} whose parameter {operand} is padded or has the batch", "use constant parameters")
    if case.rank(positions) != 2 or not isinstance(case.dims(angles[0])[0], int):
        raise refuse(f"{case.op} at positions that follow from the slot", "give a position for each frame")


TABLE: Table = {
    ("", "Attention"): named_refusal(
        "holds a whole attention, in which padding meets valid entries",
        "export it with opset 23, known heads, one type of operands and no cache, and list the pass "
        "canonicalize_attention",
    ),
    ("", "RotaryEmbedding"): on_data(rotary),
}
