"""Defines the field types of a recipe's records, and the base class of these records."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from compiler.recipe.tree.keys import Key

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""A graph, axis or pass name; it becomes part of file names and symbols."""

TensorName = Annotated[str, Field(min_length=1, max_length=256)]
"""A graph input or output; ONNX files come with any spelling."""

ObjectName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
"""A Python object, `package.module:name`."""

FilePath = Annotated[str, Field(min_length=1)]
"""Relative to the current directory first, then to the recipe's folder."""

Positive = Annotated[int, Field(ge=1)]

Dtype = Literal[
    "bfloat16",
    "bool",
    "float16",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]


def disagree(message: str, cure: str, *keys: Key) -> PydanticCustomError:
    """Return the error for keys that contradict each other: `expected ..., got ...`, a cure, and the keys' path."""
    return PydanticCustomError("disagree", "{message}", {"message": message, "cure": cure, "keys": keys})


class Record(pydantic.BaseModel):
    """Frozen; unknown keys refused; no conversion between types."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _require_known(cls, given: object) -> object:
        """Refuse unknown keys, with the known ones, before missing keys are reported."""
        unknown = [key for key in given if key not in cls.model_fields] if isinstance(given, dict) else []
        if unknown:
            raise PydanticCustomError("unknown_key", "unknown", {"key": unknown[0], "known": list(cls.model_fields)})
        return given
