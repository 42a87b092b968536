"""Lists the Ethos-U accelerators that a recipe may name, each with its integer types and Vela's default settings."""

import dataclasses

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError


@dataclasses.dataclass(frozen=True)
class Family:
    """What accelerators of one kind have in common.

    Attributes:
        profile: how TOSA's extensions name what its graphs may have, behind the 8-bit integers; empty for all.
        takes_int16: whether products of 16-bit data are computed.
        system_config: the system that Vela estimates for: clock and memories. Of those in the file that comes with it.
        memory_mode: which memory holds what, likewise.
    """

    profile: str
    takes_int16: bool
    system_config: str
    memory_mode: str


U55 = Family("+u55", takes_int16=False, system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram")
U65 = Family("+u55", takes_int16=False, system_config="Ethos_U65_High_End", memory_mode="Dedicated_Sram_384KB")
U85 = Family("", takes_int16=True, system_config="Ethos_U85_SYS_DRAM_Mid", memory_mode="Shared_Sram")
"""Systems: the larger ones of the vendor's file for each kind; a recipe may name another. Integers: Vela 5.2.0 refuses
a product of two 16-bit values for the first two."""

ACCELERATORS = {
    **{f"ethos-u55-{units}": U55 for units in (32, 64, 128, 256)},
    **{f"ethos-u65-{units}": U65 for units in (256, 512)},
    **{f"ethos-u85-{units}": U85 for units in (128, 256, 512, 1024, 2048)},
}
"""By the vendor's name, with the number of multipliers. Source: `vela --help` of ethos-u-vela 5.2.0."""


def family_of(accelerator: str) -> Family:
    """Return what is known of an accelerator.

    Raises:
        RecipeError: there is none of this name.
    """
    if accelerator not in ACCELERATORS:
        raise RecipeError(
            f"accelerator: expected one of Arm's Ethos-U, got {accelerator!r}",
            cure=did_you_mean(accelerator, list(ACCELERATORS)),
        )
    return ACCELERATORS[accelerator]
