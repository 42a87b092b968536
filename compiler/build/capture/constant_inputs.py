"""Reads the constants that a recipe gives for inputs, and writes them into an ONNX graph in place of these inputs."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.errors import RecipeError
from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Input
from compiler.recipe.load import RecipeLocation
from compiler.recipe.user_code.callables import shown_path


def constants_of(location: RecipeLocation, graph: str, spec: Graph) -> dict[str, Array]:
    """Return the constants of inputs that the recipe fixes, by name.

    Args:
        location: paths and keys of the recipe.
        graph: the graph's name.
        spec: the graph's record.

    Raises:
        RecipeError: a file is missing, or holds another shape or type.
    """
    fixed = {name: input_spec for name, input_spec in spec.inputs.items() if input_spec.constant is not None}
    return {name: _array(location, graph, name, input_spec) for name, input_spec in fixed.items()}


def _array(location: RecipeLocation, graph: str, name: str, given: Input) -> Array:
    dtype = ir.DataType[given.dtype.upper().replace("FLOAT32", "FLOAT").replace("FLOAT64", "DOUBLE")].numpy()
    shape = [int(size) for size in given.shape]
    if not isinstance(given.constant, str):
        return np.array(np.broadcast_to(np.asarray(given.constant), shape).astype(dtype))
    where = location.where("graphs", graph, "inputs", name, "constant")
    array = array_of_file(location, given.constant, where)
    if list(array.shape) != shape or array.dtype != dtype:
        file = shown_path(location.locate(given.constant))
        raise RecipeError(
            f"{where}: expected {given.dtype} {shape} in {file}, got {array.dtype} {list(array.shape)}",
            cure="write the shape and dtype of the file, or save it with those of the model",
        )
    return array


def array_of_file(location: RecipeLocation, file: str, where: str) -> Array:
    """Return the array of a `.npy` file.

    Args:
        location: paths and keys of the recipe.
        file: the file's path, relative to the recipe.
        where: the key that names the file, for messages.

    Raises:
        RecipeError: the file does not hold one array.
    """
    path = location.locate(file)
    try:
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # whatever a file of unknown origin makes the parser raise
        raise RecipeError(
            f"{where}: expected an array at {shown_path(path)}, got {str(error)[:200]}", cure="write it with numpy.save"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise RecipeError(
            f"{where}: expected an array at {shown_path(path)}, got several", cure="save one of them with numpy.save"
        )
    return array


def fix_inputs(model: ir.Model, constants: Mapping[str, Array]) -> None:
    """Replace inputs of a graph by constants, in place."""
    inputs = graphs.inputs_named(model)
    for name, array in constants.items():
        value = inputs[name]
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        value.shape = ir.Shape(array.shape)
        model.graph.register_initializer(value)
