"""Lists the Qualcomm SoCs that a recipe may name, with the vendor's ids and whether their HTP has floating point."""

import dataclasses

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError


@dataclasses.dataclass(frozen=True)
class Soc:
    """One SoC.

    Attributes:
        number: the vendor's number of the model.
        name: the vendor's part number.
        takes_float: whether the provider takes a graph in floating point for it.
    """

    number: int
    name: str
    takes_float: bool


SOCS = (
    Soc(30, "SM8350", True),
    Soc(35, "SM7325", False),
    Soc(36, "SM8450", True),
    Soc(37, "SC8280X", False),
    Soc(39, "SA8295", True),
    Soc(41, "SM7450", True),
    Soc(42, "SM8475", True),
    Soc(43, "SM8550", True),
    Soc(45, "SXR1230P", False),
    Soc(46, "SSG2115P", False),
    Soc(52, "SA8255", True),
    Soc(53, "SXR2230P", True),
    Soc(54, "SM7475", False),
    Soc(57, "SM8650", True),
    Soc(58, "SSG2125P", False),
    Soc(60, "SC8380XP", True),
    Soc(66, "QCS8550", True),
    Soc(68, "SM8635", False),
    Soc(69, "SM8750", True),
    Soc(75, "SXR2330P", True),
    Soc(77, "QCS9100", True),
    Soc(87, "SM8850", True),
    Soc(93, "QCS6490", False),
    Soc(95, "SAR2230P", False),
    Soc(96, "SW6100", False),
    Soc(97, "SM8845", True),
)
"""Names and numbers: the vendor's list of SoC models. Floating point: whether onnxruntime-qnn 2.7.0 compiles a product,
a normalisation and a softmax in float32 for the number; a slow test asks it for all of them again."""


def soc_of(written: str | int) -> Soc:
    """Return the SoC that a recipe names by its number or part number.

    Raises:
        RecipeError: it is not known.
    """
    text = str(written).strip().upper()
    for soc in SOCS:
        if text in (str(soc.number), soc.name):
            return soc
    names = [name for soc in SOCS for name in (soc.name, str(soc.number))]
    raise RecipeError(f"soc: expected an SoC of Qualcomm, got {written!r}", cure=did_you_mean(text, names))
