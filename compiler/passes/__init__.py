"""Lists the passes by name. Recipes give their order; a pass names those that must run before it in `after`."""

from collections.abc import Mapping
from typing import Any

from compiler.graph.stages import Pass
from compiler.numerics.quantization.placement import CPU, Placement, with_placement
from compiler.passes.add_batch_axis import AddBatchAxis
from compiler.passes.append_states import AppendStates
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.canonicalize_positions import CanonicalizePositions
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.canonicalize_transposes import CanonicalizeTransposes
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.carry_contexts import CarryContexts
from compiler.passes.compress import Compress
from compiler.passes.fold_factors import FoldFactors
from compiler.passes.hoist_invariants import HoistInvariants
from compiler.passes.lower_pointwise_convolutions import LowerPointwiseConvolutions
from compiler.passes.lower_precision import LowerPrecision
from compiler.passes.merge_first_call import MergeFirstCall
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.passes.overwrite_states import OverwriteStates
from compiler.passes.pack_states import PackStates
from compiler.passes.pad_axes import PadAxes
from compiler.passes.project_positions import ProjectPositions
from compiler.passes.quantize_attention import QuantizeAttention
from compiler.passes.quantize_dynamic import QuantizeDynamic
from compiler.passes.quantize_states import QuantizeStates
from compiler.passes.quantize_static import QuantizeStatic
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from compiler.passes.rescale_residuals import RescaleResiduals
from compiler.passes.select_states import SelectStates
from compiler.passes.simplify import Simplify
from compiler.passes.sink_transposes import SinkTransposes
from compiler.passes.smooth_channels import SmoothChannels
from compiler.passes.unstack_states import UnstackStates
from compiler.passes.window_states import WindowStates

PLACEMENTS = {CPU.name: CPU}
"""Those that need no target."""

PASSES: list[type[Pass]] = [
    Simplify,
    CanonicalizeAttention,
    CanonicalizeTransposes,
    CanonicalizePositions,
    CanonicalizeReshapes,
    RemoveMaskInputs,
    AddBatchAxis,
    MergeFirstCall,
    MergeKvHeads,
    UnstackStates,
    FoldFactors,
    CarryContexts,
    SelectStates,
    PadAxes,
    WindowStates,
    ProjectPositions,
    PackStates,
    AppendStates,
    OverwriteStates,
    HoistInvariants,
    QuantizeStates,
    Compress,
    RescaleResiduals,
    LowerPrecision,
    LowerPointwiseConvolutions,
    SinkTransposes,
    SmoothChannels,
    QuantizeStatic,
    QuantizeDynamic,
    QuantizeAttention,
    CarryCodes,
]


def pass_kinds() -> dict[str, type[Pass]]:
    """Return all passes by name."""
    return {kind.name: kind for kind in PASSES}


def make_pass(name: str, options: Mapping[str, Any], placements: Mapping[str, Placement] = PLACEMENTS) -> Pass:
    """Return the pass of that name with the options of a recipe, whose lists become tuples.

    Args:
        name: name of the pass.
        options: options in the recipe's form.
        placements: placement rules of the targets, by their name in recipes.

    Raises:
        RecipeError: an option names unknown rules.
    """
    completed = with_placement(options, placements)
    return pass_kinds()[name](**{option: _hashable(value) for option, value in completed.items()})


def with_preferred(name: str, options: Mapping[str, Any], preferred: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a recipe's options of a pass, with a target's where the recipe has none.

    Args:
        name: name of the pass.
        options: options in the recipe's form.
        preferred: the target's options, by pass.
    """
    return {**preferred.get(name, {}), **options}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
