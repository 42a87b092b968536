"""The small examples, as a newcomer takes them: the folder copied elsewhere, checked, built and run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import runtime_lite
from examples.cache_step import decoder
from examples.derived_steps import whole_decoder
from examples.recurrent_step import tagger
from examples.two_graphs import aligner
from tests.kit.models.project import Project

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = {
    "tagger": "recurrent_step",
    "decoder": "cache_step",
    "aligner": "two_graphs",
    "whole_decoder": "derived_steps",
}

PRINTED = {
    "tagger": "(2, 8, 30) [",
    "decoder": "41 [1, ",
    "aligner": "(1, 50, 64) (1, 50) [",
    "whole_decoder": "40 [1, 7, 4, ",
}
"""How the line begins that each example's script prints."""

Arrays = dict[str, np.ndarray]


def copied(name: str, folder: Path) -> Project:
    """An example's folder at a place of its own, as the start of somebody's model."""
    shutil.copytree(ROOT / "examples" / FOLDERS[name], folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return Project(folder / name, folder / "cache")


def built(name: str, folder: Path) -> Path:
    """The bundle of an example, after the three commands that the page names."""
    project = copied(name, folder)
    ended = project.run("--recipe", f"{name}.yaml", "--no-cache")
    assert (ended.code, ended.err) == (0, ""), ended.err
    command = [sys.executable, "-W", "error", f"run_{name}.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=project.folder, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith(PRINTED[name]), done.stdout + done.stderr
    return project.folder / "dist" / name


def original(module: nn.Module, chunks: Sequence[Arrays], states: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """The first result of the module for every chunk, its other results fed back."""
    answers = []
    for chunk in chunks:
        with torch.no_grad():
            given = [torch.from_numpy(array) for array in chunk.values()]
            answer, *states = module(*given, *states)
        answers.append(answer.numpy())
    return answers


def shipped(bundle: Path, chunks: Sequence[Arrays], graph: str) -> list[np.ndarray]:
    """The first output of the bundle's graph for every chunk of one stream."""
    with runtime_lite.Runtime() as runtime, runtime.load(bundle).open_stream(graph) as stream:
        return [next(iter(stream.push(chunk).values())) for chunk in chunks]


def largest_difference(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    return max(float(np.max(np.abs(a - b))) for a, b in zip(got, expected, strict=True))


def fresh(count: int, make: Callable[[np.random.Generator], Arrays]) -> list[Arrays]:
    """Chunks that no recipe has seen."""
    random = np.random.default_rng(7)
    return [make(random) for _ in range(count)]


@pytest.mark.parametrize("name", FOLDERS)
def test_recipe_of_a_copied_example_holds(name: str, tmp_path: Path) -> None:
    ended = copied(name, tmp_path).run("check", f"{name}.yaml")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.slow
def test_recurrent_step_answers_as_its_module(tmp_path: Path) -> None:
    chunks = fresh(50, lambda random: {"features": random.standard_normal((1, 8, 40), dtype=np.float32)})
    states = [torch.zeros(2, 1, 64), torch.zeros(2, 1, 64)]
    expected = original(tagger.build(), chunks, states)
    assert largest_difference(shipped(built("tagger", tmp_path), chunks, "tagger"), expected) < 1e-5


def test_cache_step_answers_as_its_module_until_the_window_is_full(tmp_path: Path) -> None:
    chunks = fresh(32, lambda random: {"tokens": random.integers(0, 30, (1, 1))})
    expected = original(decoder.build(), chunks, [torch.zeros(1, 4, 0, 16)] * 2)
    assert largest_difference(shipped(built("decoder", tmp_path), chunks, "decoder"), expected) < 1e-5


@pytest.mark.slow
def test_derived_steps_answer_as_the_whole_sequence(tmp_path: Path) -> None:
    tokens = np.random.default_rng(7).integers(0, 30, (1, 60))
    expected = whole_scores(tokens)
    chunks = [{"tokens": tokens[:, at : at + n]} for at, n in [(0, 8), *((8 + i, 1) for i in range(52))]]
    got = np.concatenate(shipped(built("whole_decoder", tmp_path), chunks, "decoder"), axis=1)
    assert float(np.max(np.abs(got - expected))) < 1e-5


def whole_scores(tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(whole_decoder.build()(torch.from_numpy(tokens)))


@pytest.mark.slow
def test_two_graphs_answer_as_their_modules(tmp_path: Path) -> None:
    chunks = fresh(
        50,
        lambda random: {"frame": random.standard_normal((1, 64), dtype=np.float32), "label": random.integers(0, 30, 1)},
    )
    bundle = built("aligner", tmp_path)
    expected = original(aligner.build_step(), chunks, [torch.zeros(1, 64)])
    assert largest_difference(shipped(bundle, chunks, "step"), expected) < 1e-5
    utterances = fresh(3, lambda random: {"features": random.standard_normal((1, 41, 40), dtype=np.float32)})
    with runtime_lite.Runtime() as runtime:
        frames = [runtime.load(bundle).run(feeds, graph="encoder")["frames"] for feeds in utterances]
    assert largest_difference(frames, original(aligner.build_encoder(), utterances, [])) < 1e-5
