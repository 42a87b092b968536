"""Finds the length and mask inputs of a bundle's graph file, with their values for a call that fills all its slots."""

from pathlib import Path

from runtime_lite.bench import full_caches
from runtime_lite.errors import RuntimeLiteError
from runtime_lite.format.manifest import MANIFEST_FILE
from runtime_lite.format.reader import read_bundle


def counts_in_use(path: Path) -> dict[str, int]:
    """Return lengths and masks by input, for full caches and full rows; empty for a file that is in no bundle.

    Args:
        path: an ONNX file.
    """
    folder = path.resolve().parent.parent
    if not (folder / MANIFEST_FILE).is_file():
        return {}
    try:
        with read_bundle(folder) as bundle:
            graphs = list(bundle.manifest.graphs.values())
    except RuntimeLiteError:
        return {}  # something else of that name lies there, or a bundle that is refused: the file is timed as it is
    name, counts = path.resolve().relative_to(folder).as_posix(), dict[str, int]()
    for graph in graphs:
        for artifact in graph.artifacts:
            if artifact.file != name:
                continue
            valid = full_caches(graph, artifact.sizes)
            counts |= {cache.length_input: valid[cache.axis] for cache in graph.caches}
            counts |= {cache.mask_input: 1 for cache in graph.caches if cache.mask_input is not None}
            lengths = {axis: bounds.length_input for axis, bounds in graph.axes.items()}
            counts |= {
                length_input: artifact.sizes[axis] for axis, length_input in lengths.items() if length_input is not None
            }
    return counts
