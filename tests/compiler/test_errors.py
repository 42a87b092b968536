"""An error says where, what and what to do; its class says whose fault it is."""

import inspect

from compiler import errors
from compiler.errors import Location, Refused, SlipwayError


def test_message_holds_place_sentence_and_cure() -> None:
    place = Location(stage="pad_axes", node="n1", op="Softmax", source="model.py:3 in forward")
    error = Refused("expected a rule, got none", cure="write one", place=place)
    where = "stage pad_axes, node n1, op Softmax, source model.py:3 in forward"
    assert str(error) == f"{where}: expected a rule, got none; write one"
    assert str(Refused("expected a rule, got none")) == "expected a rule, got none"


def test_outer_stages_fill_in_only_what_is_unknown() -> None:
    error = Refused("expected a", place=Location(stage="inner")).at(stage="outer", graph="encoder")
    assert str(error) == "stage inner, graph encoder: expected a"


def test_exit_codes_are_the_documented_ones() -> None:
    codes = {
        name: kind.exit_code
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, SlipwayError) and kind is not SlipwayError
    }
    assert codes == {
        "RecipeError": 2,
        "CheckpointError": 2,
        "DataError": 2,
        "Refused": 3,
        "GateFailed": 4,
        "ToolchainAbsent": 5,
        "MachineError": 2,
        "InternalError": 1,
    }
