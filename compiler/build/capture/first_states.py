"""Reads the files that hold a stream's initial states, and writes their values into the graph's recipe record.

Keys of cached results are made of the record, so that what a file holds is part of them, and its name is not.
"""

from compiler.build.capture.constant_inputs import array_of_file
from compiler.errors import RecipeError
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.written_numbers import fault_of_initial, fault_of_shape
from runtime_lite.format.initial_value import Initial, initial_of_array


def with_first_states(location: RecipeLocation, graph: str, spec: Graph) -> Graph:
    """Return the record of a graph with initial states read from the files that it names.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record.

    Raises:
        RecipeError: a file is missing, holds another shape or type, or numbers that the type cannot hold.
    """
    read = {
        name: input_spec.model_copy(update={"initial": _numbers(location, graph, name, spec, input_spec.initial)})
        for name, input_spec in spec.inputs.items()
        if isinstance(input_spec.initial, str)
    }
    return spec.model_copy(update={"inputs": {**spec.inputs, **read}}) if read else spec


def _numbers(location: RecipeLocation, graph: str, name: str, spec: Graph, file: str) -> Initial:
    """Return the numbers of a file in the shortest form that a record can write."""
    where, dtype = location.where("graphs", graph, "inputs", name, "initial"), spec.inputs[name].dtype
    array, sizes = array_of_file(location, file, where), spec.sizes_at_start(name)
    if str(array.dtype) != dtype:
        raise RecipeError(
            f"{where}: expected {dtype} in {file}, got {array.dtype}", cure=f"save it with .astype('{dtype}')"
        )
    numbers = initial_of_array(array)
    fault = fault_of_shape(array.shape, sizes) or fault_of_initial(numbers, sizes, dtype)
    if fault is not None:
        raise RecipeError(f"{where}: {fault[0]} in {file}", cure=fault[1])
    return numbers
