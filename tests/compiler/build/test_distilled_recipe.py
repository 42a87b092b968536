"""distilled_recipe: a checkpoint whose heads share is trained once, held to its limit, and built like any other."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from compiler.build.distilled_recipe import distilled_recipe
from compiler.build.report.progress import Progress
from compiler.recipe.load import load_recipe
from tests.kit.models.project import Project

MODEL = """
import torch
from torch import nn
from torch.nn import functional

class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(11, 16)
        self.query, self.key, self.value, self.output = (nn.Linear(16, 16) for _ in range(4))
        self.scores = nn.Linear(16, 11)

    def forward(self, tokens):
        x = self.letters(tokens)
        q, k, v = (part(x).reshape(*x.shape[:2], 4, 4).transpose(1, 2) for part in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.scores(x + self.output(attended.transpose(1, 2).flatten(2)))

def build():
    torch.manual_seed(0)
    return Speller()
"""

DATA = """
import numpy as np

def drawn(seed):
    random = np.random.default_rng(seed)
    while True:
        yield [{"tokens": random.integers(0, 11, (1, n))} for n in (6, *[1] * 6)]

def streams():
    return drawn(0)

def others():
    return drawn(1)
"""

RECIPE = {
    "name": "speller",
    "graphs": {
        "net": {
            "source": {"factory": "speller:build"},
            "inputs": {"tokens": {"shape": ["batch", "time"], "dtype": "int64", "range": [0, 10]}},
            "outputs": ["scores"],
            "axes": {"batch": {"buckets": [1]}, "time": {"buckets": [1, 6], "length_input": "time_length"}},
            "derive_steps": {"along": "time", "window": 12},
            "share_heads": {"groups": 2, "answers": "classes", "updates": 20, "rows": 4, "limit": 0.5},
        }
    },
    "data": {
        "verification": {"feeds": "tokens:streams", "count": 1},
        "distillation": {"feeds": "tokens:others", "count": 30},
    },
    "targets": [{"kind": "onnx_static"}],
    "gates": {"parity": {"net": {"max_abs": 1.0e-4, "chained_steps": 6}}},
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path, tmp_path / "cache")
    for name, content in {"speller.py": MODEL, "tokens.py": DATA, "speller.yaml": yaml.safe_dump(RECIPE)}.items():
        made.write(name, content)
    return made


def changed(**keys: Any) -> str:
    options = RECIPE["graphs"]["net"]["share_heads"] | keys  # type: ignore[index]
    return f"graphs.net.share_heads={json.dumps(options)}"


def test_a_recipe_whose_heads_do_not_share_is_left_as_it_is() -> None:
    loaded = load_recipe("tts_ar.yaml")
    with distilled_recipe(loaded, None, Progress()) as ready:
        assert ready is loaded


@pytest.mark.slow
def test_heads_are_explained_as_they_are_without_training(project: Project) -> None:
    # regression: heads that training would tie were expected to be equal
    ended = project.run("explain", "net", "--recipe", "speller.yaml")
    assert ended.code == 0, ended.err
    assert "share_heads: left out here" in ended.out


@pytest.mark.slow
def test_caches_hold_the_groups_and_training_is_done_once(project: Project) -> None:
    ended = project.build(recipe="speller.yaml")
    assert ended.code == 0, ended.err
    (told,) = [each["detail"] for each in ended.report["stages"] if each["stage"] == "share_heads"]
    assert [each["stage"] for each in ended.report["stages"]].count("distillation data") == 1
    assert told.startswith("4 -> 2 heads, answers ") and "after 20 updates" in told
    manifest = json.loads((project.folder / "bundle" / "manifest.json").read_text())
    shapes = [state["shape"] for state in manifest["graphs"]["net"]["states"]]
    assert len(shapes) == 2 and all(2 in shape and 4 in shape for shape in shapes)
    again = project.build(recipe="speller.yaml")
    assert again.code == 0 and "net:share_heads" in again.stages(cached=True)


@pytest.mark.slow
def test_answers_further_than_the_limit_fail_the_build(project: Project) -> None:
    ended = project.build("--set", changed(limit=0.0001, updates=0), recipe="speller.yaml", cached=False)
    assert ended.code == 4 and "expected answers at most 0.0001 nats from the original's, got" in ended.message
    assert not (project.folder / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "message"),
    [({"groups": 3}, "expected a divisor of 4 heads, got 3 groups"), ({"groups": 4}, "heads share already")],
)
def test_heads_that_cannot_share_are_refused(project: Project, keys: dict[str, int], message: str) -> None:
    ended = project.build("--set", changed(**keys), recipe="speller.yaml", cached=False)
    assert ended.code == 3 and message in ended.message
