"""Models over whole utterances go through the front door; 100 calls say what the whole utterance says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import runtime_lite
from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import npz_from_arrays
from tests.kit.models import whole_models
from tests.kit.models.project import Project
from tests.kit.models.whole_models import CHUNK, FEATURES, HEARD, TOKENS, WIDTH
from tests.runtime_lite.bundles import replace_hashed, rewrite_contracts

pytestmark = pytest.mark.slow

MODELS = "tests.kit.models.whole_models"


def built(
    folder: Path, graph: dict[str, Any], feeds: str, steps: int, *, is_rounded: bool = False
) -> tuple[Project, Path]:
    """A bundle of one graph; of one that a pass rounds, calibrated on what it is verified with but for the draws."""
    made, name = Project(folder, folder / "cache"), "net"
    told = {"feeds": f"{MODELS}:{feeds}", "count": 2}
    lossy = {"lossy": {"max_abs": 0.25, "sqnr_db": 25.0}} if is_rounded else {}
    recipe = {
        "name": "whole",
        "graphs": {name: graph},
        "data": {"verification": told},
        "targets": [{"kind": "onnx_static"}],
        "gates": {"parity": {name: {"max_abs": 1.0e-5, "chained_steps": steps, **lossy}}},
    }
    if is_rounded:
        recipe["data"] = {"verification": told, "calibration": {**told, "feeds": f"{MODELS}:{feeds}_to_calibrate"}}
    made.write("whole.yaml", yaml.safe_dump(recipe, sort_keys=False))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    return made, folder / "bundle"


def said(model: torch.nn.Module, *arrays: np.ndarray) -> np.ndarray:
    """What a module answers to whole utterances."""
    with torch.no_grad():
        return np.asarray(model(*map(torch.from_numpy, arrays)).numpy())


def pushed(stream: Any, along: str, feed: dict[str, np.ndarray], lengths: Sequence[int]) -> np.ndarray:
    """The answers to all calls, one behind the other."""
    found, at = [], 0
    for count in lengths:
        found.append(stream.push({**feed, along: feed[along][:, at : at + count]})["scores"])
        at += count
    return np.concatenate(found, axis=1)


def test_a_conformer_with_chunk_masks(tmp_path: Path) -> None:
    graph = {
        "source": {"factory": f"{MODELS}:conformer"},
        "inputs": {"features": {"shape": ["batch", "time", FEATURES], "dtype": "float32"}},
        "outputs": ["scores"],
        "axes": {
            "batch": {"buckets": [1]},
            "time": {"buckets": [CHUNK, 2 * CHUNK], "length_input": "time_length"},
        },
        "derive_steps": {"along": "time", "window": 101 * CHUNK, "chunk": CHUNK, "forget": True},
    }
    _, bundle = built(tmp_path, graph, "utterances", 11)
    features = np.random.default_rng(7).standard_normal((1, 100 * CHUNK + 3, FEATURES)).astype(np.float32)
    with runtime_lite.Runtime() as runtime, runtime.load(bundle).open_stream() as stream:
        got = pushed(stream, "features", {"features": features}, [*[CHUNK] * 50, *[2 * CHUNK] * 25, 3])
        with pytest.raises(BadInput, match="a shorter chunk ends a stream"):
            stream.push({"features": features[:, :CHUNK]})
    np.testing.assert_allclose(got, said(whole_models.conformer(), features), rtol=0, atol=1e-4)


def listening(*passes: str | dict[str, Any]) -> dict[str, Any]:
    """The graph of a decoder that attends to what was heard."""
    return {
        "source": {"factory": f"{MODELS}:seq2seq"},
        "inputs": {
            "encoded": {"shape": ["batch", "heard", WIDTH], "dtype": "float32"},
            "tokens": {"shape": ["batch", "time"], "dtype": "int64", "range": [0, TOKENS - 1]},
        },
        "outputs": ["scores"],
        "axes": {
            "batch": {"buckets": [1]},
            "heard": {"buckets": [HEARD], "length_input": "heard_length"},
            "time": {"buckets": [1, 8], "length_input": "time_length"},
        },
        "derive_steps": {"along": "time", "window": 112},
        "passes": list(passes),
    }


@pytest.mark.parametrize("in_front", [[], ["append_states"]], ids=["caches given whole", "caches appended to"])
def test_a_decoder_computes_keys_and_values_of_what_was_heard_once(tmp_path: Path, in_front: list[str]) -> None:
    once = {"hoist_invariants": {"inputs": ["encoded"], "slots": HEARD}}
    graph = listening("standard", *in_front, once, "simplify")
    project, bundle = built(tmp_path, graph, "sentences", 25)
    random = np.random.default_rng(7)
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(bundle)
        assert [each.input for each in model.runner().graph.states if each.input.startswith("once")] == [
            "once", "once_2", "once_3", "once_4",
        ]  # fmt: skip
        for heard in (HEARD, 1):
            encoded = random.standard_normal((1, heard, WIDTH)).astype(np.float32)
            tokens = random.integers(0, TOKENS, (1, 112))
            with model.open_stream() as stream:
                got = pushed(stream, "tokens", {"encoded": encoded, "tokens": tokens}, (8, *[1] * 104))
            np.testing.assert_allclose(got, said(whole_models.seq2seq(), encoded, tokens), rtol=0, atol=1e-4)
    ended = project.run("verify", "bundle")
    assert ended.code == 0 and "2 graph files follow from it byte for byte" in ended.out
    content = json.loads((bundle / "certificates/net.json").read_bytes())
    told = [each for each in content["records"] if each.get("kind") == "once"]
    assert len(told) == 1
    told[0]["kept"][0]["stands"], told[0]["kept"][1]["stands"] = (told[0]["kept"][at]["stands"] for at in (1, 0))
    for records, expected in (
        (content["records"], "what is computed once that holds"),
        ([each for each in content["records"] if each not in told], "1 proofs of what is computed once, got 0"),
    ):
        replace_hashed(bundle, "certificates/net.json", json.dumps({**content, "records": records}).encode())
        rewrite_contracts(bundle)
        ended = project.run("verify", "bundle")
        assert ended.code != 0 and expected in ended.err


def test_caches_of_integers_are_carried_and_told(tmp_path: Path) -> None:
    """To the original they are held in its numbers; the golden answers, codes, may be one off."""
    project, bundle = built(tmp_path, listening("standard", "quantize_states"), "sentences", 25, is_rounded=True)
    assert project.run("verify", "bundle").code == 0
    encoded = np.random.default_rng(7).standard_normal((1, HEARD, WIDTH)).astype(np.float32)
    tokens = np.random.default_rng(7).integers(0, TOKENS, (1, 40))
    with runtime_lite.Runtime() as runtime:
        model = runtime.load(bundle)
        assert {each.dtype for each in model.runner().graph.states} == {"int8"}
        with model.open_stream() as stream:
            got = pushed(stream, "tokens", {"encoded": encoded, "tokens": tokens}, (8, *[1] * 32))
    right = said(whole_models.seq2seq(), encoded, tokens)
    assert 0.0 < np.mean((got - right) ** 2) < 1e-3 * np.mean(right**2)
    for accepted in (True, False):
        _move_codes(bundle)
        rewrite_contracts(bundle)
        assert (project.run("verify", "bundle").code == 0) is accepted


def _move_codes(bundle: Path) -> None:
    """Let the golden answers hold codes that are one further off."""
    with np.load(bundle / "golden/net.npz") as file:
        arrays = {name: array.copy() for name, array in file.items()}
    coded = [array for array in arrays.values() if array.dtype == np.int8]
    assert coded
    for array in coded:
        array += np.where(array < 100, 1, 0).astype(np.int8)
    arrays["tolerance"] = np.array(1e-4, np.float32)  # less than a code
    replace_hashed(bundle, "golden/net.npz", npz_from_arrays(arrays))
