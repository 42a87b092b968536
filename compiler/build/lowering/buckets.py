"""Checks that the bucket sizes of a recipe lie within the lengths for which the proofs hold."""

from collections.abc import Mapping

from compiler.errors import Refused
from compiler.graph.stages import Lowered


def check_buckets(lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> None:
    """Require that every bucket is within the proved lengths, and that rows share a call only if proved independent.

    Raises:
        Refused: a bucket is not; the message names it.
    """
    for padded_axis in lowered.padded_axes:
        for slots in buckets[padded_axis.axis]:
            if slots < padded_axis.minimum or slots > (padded_axis.maximum or slots):
                is_short = slots < padded_axis.minimum
                limit = f"at least {padded_axis.minimum}" if is_short else f"at most {padded_axis.maximum}"
                by = f": {padded_axis.limited_by}" if padded_axis.limited_by and not is_short else ""
                raise Refused(
                    f"expected buckets of {padded_axis.axis} of {limit}, for which the proof holds, got {slots}{by}",
                    cure="drop the bucket" + (", or give the model a larger table or type" if by else ""),
                ).at(axis=padded_axis.axis)
    rows = buckets.get(lowered.batch_axis or "", (1,))
    if rows[-1] > 1 and not lowered.rows_independent:
        raise Refused(
            f"expected a proof that rows are independent for buckets of {rows[-1]} rows, got none",
            cure="put pad_axes into the recipe's passes, or build buckets: [1]",
        ).at(axis=str(lowered.batch_axis))
