"""The passes by name. Order lives in the recipes."""

from collections.abc import Mapping
from typing import Any

from compiler.passes.add_batch_axis import AddBatchAxis
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.canonicalize_positions import CanonicalizePositions
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.canonicalize_transposes import CanonicalizeTransposes
from compiler.passes.equalize_channels import EqualizeChannels
from compiler.passes.fold_mask_inputs import FoldMaskInputs
from compiler.passes.lower_precision import LowerPrecision
from compiler.passes.merge_first_call import MergeFirstCall
from compiler.passes.pack_states import PackStates
from compiler.passes.pad_axes import PadAxes
from compiler.passes.project_positions import ProjectPositions
from compiler.passes.quantize_dynamic import QuantizeDynamic
from compiler.passes.quantize_static import QuantizeStatic
from compiler.passes.rescale_streams import RescaleStreams
from compiler.passes.select_states import SelectStates
from compiler.passes.simplify import Simplify
from compiler.passes.window_states import WindowStates
from compiler.stages import Pass

PASSES: dict[str, type[Pass]] = {
    "simplify": Simplify,
    "canonicalize_attention": CanonicalizeAttention,
    "canonicalize_transposes": CanonicalizeTransposes,
    "canonicalize_positions": CanonicalizePositions,
    "canonicalize_reshapes": CanonicalizeReshapes,
    "fold_mask_inputs": FoldMaskInputs,
    "add_batch_axis": AddBatchAxis,
    "merge_first_call": MergeFirstCall,
    "select_states": SelectStates,
    "pad_axes": PadAxes,
    "window_states": WindowStates,
    "project_positions": ProjectPositions,
    "pack_states": PackStates,
    "rescale_streams": RescaleStreams,
    "lower_precision": LowerPrecision,
    "equalize_channels": EqualizeChannels,
    "quantize_static": QuantizeStatic,
    "quantize_dynamic": QuantizeDynamic,
}


def make_pass(name: str, options: Mapping[str, Any]) -> Pass:
    """The pass that a recipe names, with its options; lists of a recipe are tuples in it."""
    return PASSES[name](**{option: _hashable(value) for option, value in options.items()})


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
