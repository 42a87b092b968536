"""`build.py init`, then `check`, then a build: from files and from factories, and what is left to the caller."""

import re
from pathlib import Path

import pytest

from compiler.recipe.load import load_recipe
from tests.compiler.front.commands.files import CACHE, STEP, outside_weights, write
from tests.kit.models.project import Ended, Project

MODELS = '''\
"""Small models, each with a factory."""

import torch
from torch import nn


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, features, hidden):
        hidden = self.cell(features, hidden)
        return self.out(hidden), hidden


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 8, num_layers=2, batch_first=True)

    def forward(self, x, h0):
        y, hn = self.rnn(x, h0)
        return y, hn


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, features, keys, values):
        keys = torch.cat([keys, self.key(features)], dim=1)
        values = torch.cat([values, self.value(features)], dim=1)
        scores = self.query(features) @ keys.transpose(1, 2) / 8.0
        return torch.softmax(scores, dim=-1) @ values, keys, values


class Convolve(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x, conv_cache):
        joined = torch.cat([conv_cache, x], dim=2)
        return self.conv(joined), joined[:, :, -2:]


class Encode(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, features):
        return self.out(torch.relu(self.inner(features)))


class Write(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(8, 8)

    def forward(self, x, caches):
        caches[0] = torch.cat([caches[0], self.key(x)], dim=1)
        return torch.softmax(x @ caches[0].transpose(1, 2), dim=-1) @ caches[0]


def made(kind):
    torch.manual_seed(0)
    return kind()


def step():
    return made(Step)


def layers():
    return made(Layers)


def attend():
    return made(Attend)


def convolve():
    return made(Convolve)


def write():
    return made(Write)


def encode():
    return made(Encode)
'''

FACTORIES = {
    "step": ("features=batch,6", "hidden=batch,8"),
    "layers": ("x=batch,1,6", "h0=2,batch,8"),
    "attend": ("features=batch,4,8", "keys=batch,past,8", "values=batch,past,8"),
    "convolve": ("x=batch,4,6", "conv_cache=batch,4,2"),
    "write": ("x=batch,4,8", "caches.0=batch,past,8"),
    "encode": ("features=batch,time,5",),
}


def described(name: str) -> list[str]:
    return [part for text in FACTORIES[name] for part in ("--input", text)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "models.py").write_text(MODELS)
    return Project(folder, tmp_path / "cache")


def started(project: Project, *arguments: str, out: str = "new.yaml") -> str:
    """The text of the recipe that `init` has written, which `check` accepts."""
    ended = project.run("init", *arguments, "--out", out)
    assert (ended.code, ended.err) == (0, ""), ended
    assert f"{out}: written, " in ended.out and "build.py check" in ended.out
    checked = project.run("check", out)
    assert (checked.code, checked.err) == (0, ""), checked
    return (project.folder / out).read_text()


def built(project: Project, recipe: str = "new.yaml", *more: str) -> Ended:
    ended = project.run("--recipe", recipe, "--out", "bundle", "--no-cache", *more)
    assert (ended.code, ended.err) == (0, ""), ended
    return ended


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("step", STEP, ["h: {shape: [1, 4], dtype: float32, state: next_h}  # guessed: a state, fed by next_h"]),
        (
            "cache",
            CACHE,
            [
                "cache: {shape: [batch, past, 4], dtype: float32, state: next_cache}  # guessed: a state",
                "batch: {buckets: [1, 4]}  # guessed: rows, as it is in front of every input and output",
                "past: {window: 64}  # guessed: next_cache comes back 2 longer",
            ],
        ),
        (
            "unnamed",
            CACHE.replace("batch,2,4] x", "x_dynamic_axes_1,2,4] x").replace("batch,past", "s1,cache_dynamic_axes_2"),
            [
                "x: {shape: [batch, 2, 4], dtype: float32}\n",
                "cache: {shape: [batch, cached, 4], dtype: float32, state: next_cache}",
                "batch: {buckets: [1, 4]}",
            ],
        ),
        (
            "encoder",
            "(float[batch,time,4] x) => (float[batch,time,4] y) { y = Tanh(x) }",
            ["time: {buckets: [128, 256, 512], length_input: time_length}  # guessed: frames"],
        ),
    ],
)
def test_a_file_is_started_checked_and_built(name: str, text: str, lines: list[str], project: Project) -> None:
    write(project.folder / f"{name}.onnx", text)
    recipe = started(project, f"{name}.onnx")
    for line in lines:
        assert line in recipe
    assert f"source: {{onnx: {name}.onnx}}" in recipe
    assert built(project).out.endswith("bundle: bundle\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_is_started_checked_and_built(name: str, project: Project) -> None:
    started(project, f"models:{name}", *described(name))
    assert built(project).out.endswith("bundle: bundle\n")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "step",
            ["hidden: {shape: [batch, 8], dtype: float32, state: next_hidden}", "outputs: [output_0, next_hidden]"],
        ),
        (
            "layers",
            ["h0: {shape: [2, batch, 8], dtype: float32, state: hn}", "batch: {fixed: 1}  # guessed: rows, one"],
        ),
        (
            "attend",
            [
                "keys: {shape: [batch, past, 8], dtype: float32, state: next_keys}",
                "past: {window: 64}",
                "buckets: [1, 4]",
            ],
        ),
        ("convolve", ["conv_cache: {shape: [batch, 4, 2], dtype: float32, state: output_1}"]),
        (
            "write",
            [
                "caches.0: {shape: [batch, past, 8], dtype: float32, state: next_caches.0}",
                "outputs: [output_0, next_caches.0]",
                "past: {window: 64}",
            ],
        ),
        ("encode", ["time: {buckets: [128, 256, 512], length_input: time_length}"]),
    ],
)
def test_a_factory_is_understood(name: str, lines: list[str], project: Project) -> None:
    recipe = started(project, f"models:{name}", *described(name))
    for line in (*lines, f'source: {{factory: "models:{name}"}}'):
        assert line in recipe


def test_a_factory_without_sizes_is_left_to_fill_in_and_check_points_there(project: Project) -> None:
    ended = project.run("init", "models:step")
    assert ended.code == 0
    assert "models.yaml: written, " in ended.out and " to fill in" in ended.out and "--input features=" in ended.out
    checked = project.run("check", "models.yaml")
    assert checked.code == 2
    line = next(
        n for n, text in enumerate((project.folder / "models.yaml").read_text().splitlines(), 1) if "[TODO]" in text
    )
    assert f"models.yaml:{line}: graphs.models.inputs.features.shape.0: expected a value, got TODO" in checked.message
    assert not (project.folder / "models_data.py").exists()


def test_a_place_may_be_filled_in_from_the_command_line(project: Project) -> None:
    write(project.folder / "m.onnx", STEP)
    recipe = started(project, "m.onnx")
    (project.folder / "new.yaml").write_text(recipe.replace("max_abs: 1.0e-5", "max_abs: TODO"))
    assert project.run("check", "new.yaml").code == 2
    assert project.run("--set", "gates.parity.new.max_abs=1.0e-4", "check", "new.yaml").code == 0


def test_sizes_that_no_graph_can_have_together_are_the_recipes_fault(project: Project) -> None:
    write(project.folder / "m.onnx", CACHE.replace("batch,past", "rows,past"))
    text = started(project, "m.onnx")
    clash = text.replace("[batch, past, 4]", "[rows, past, 4]").replace("batch: {buckets: [1, 4]}", "batch: {fixed: 1}")
    (project.folder / "new.yaml").write_text(clash.replace("    axes:\n", "    axes:\n      rows: {fixed: 8}\n"))
    ended = project.run("--recipe", "new.yaml")
    assert ended.code == 2
    assert "graph new, node " in ended.message and "op Concat" in ended.message
    assert "got 8 (written for cache) and 1 (written for x); give axes that are one the same name" in ended.message


def test_a_cache_with_several_outputs_to_choose_from_is_a_place_to_fill_in(project: Project) -> None:
    text = "(float[1,2,4] x, float[1,past,4] kept) => (float[1,a,4] p, float[1,b,4] q) {"
    write(project.folder / "m.onnx", f"{text} p = Concat<axis = 1>(kept, x)  q = Neg(p) }}")
    ended = project.run("init", "m.onnx")
    assert (ended.code, ended.err) == (0, "") and ", 1 place to fill in" in ended.out
    assert (
        "kept: {shape: [1, past, 4], dtype: float32, state: TODO}  # TODO: the output that feeds it; these come "
        in (project.folder / "m.yaml").read_text()
    )
    checked = project.run("check", "m.yaml")
    assert checked.code == 2 and "inputs.kept.state: expected a value, got TODO" in checked.message


def test_every_guess_is_marked_and_counted(project: Project) -> None:
    write(project.folder / "m.onnx", CACHE)
    ended = project.run("init", "m.onnx")
    text = (project.folder / "m.yaml").read_text()
    marked = len(re.findall("# guessed:", text))
    assert f"m.yaml: written, {marked} guesses marked, nothing to fill in\n" in ended.out
    assert marked == 6


def test_nothing_is_overwritten(project: Project) -> None:
    write(project.folder / "m.onnx", STEP)
    project.write("m.yaml", "mine")
    ended = project.run("init", "m.onnx")
    assert (ended.code, (project.folder / "m.yaml").read_text()) == (2, "mine")
    assert "expected a new file, got m.yaml" in ended.message
    project.write("other_data.py", "mine = 1\n")
    ended = project.run("init", "m.onnx", "--out", "other.yaml")
    assert (ended.code, (project.folder / "other_data.py").read_text()) == (2, "mine = 1\n")
    assert not (project.folder / "other.yaml").exists()
    (project.folder / "link.yaml").symlink_to("elsewhere.yaml")
    assert project.run("init", "m.onnx", "--out", "link.yaml").code == 2
    assert not (project.folder / "elsewhere.yaml").exists()


def test_a_recipe_in_another_folder_finds_the_file(project: Project) -> None:
    write(project.folder / "m.onnx", STEP)
    (project.folder / "recipes").mkdir()
    recipe = started(project, "m.onnx", out="recipes/mine.yaml")
    assert "onnx: ../m.onnx" in recipe.replace('"', "")
    assert load_recipe(str(project.folder / "recipes" / "mine.yaml")).recipe.name == "mine"


def test_names_that_hold_anything_are_written_such_that_they_are_read(project: Project) -> None:
    write(project.folder / "m.onnx", STEP)
    import onnx

    model = onnx.load(project.folder / "m.onnx")
    odd = {"x": "on", "h": "past: {a}#\n1", "next_h": "present: {a}#\n1", "y": 'no"'}
    for value in (*model.graph.input, *model.graph.output):
        value.name = odd[value.name]
    for node in model.graph.node:
        node.input[:] = [odd.get(name, name) for name in node.input]
        node.output[:] = [odd.get(name, name) for name in node.output]
    onnx.save(model, project.folder / "m.onnx")
    started(project, "m.onnx")
    graph = load_recipe(str(project.folder / "new.yaml")).recipe.graphs["new"]
    assert (set(graph.inputs), set(graph.outputs)) == ({odd["x"], odd["h"]}, {odd["y"], odd["next_h"]})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no.onnx"], "expected an ONNX file, got nothing at no.onnx"),
        (["lost.onnx"], "lost.bin"),
        (["model"], "expected MODEL.onnx or module:factory, got 'model'"),
        (["models:nothing", "--input", "x=1"], "nothing called 'nothing'"),
        (["nowhere:build"], "expected an importable module, got 'nowhere'"),
        (
            ["models:step", "--input", "features=batch,6"],
            "expected features, hidden, as forward takes them, got no hidden",
        ),
        (["models:step", *described("step"), "--input", "more=1"], "--input more: expected an input of forward"),
        (["models:step", "--input", "features=batch,7", "--input", "hidden=batch,8"], "to answer features [2, 7]"),
        (["step.onnx", "--input", "x=1,4"], "expected no --input, as the file has its own"),
        (["step.onnx", "--out", "mine.txt"], "--out: expected a file that ends in .yaml, got mine.txt"),
        (["step.onnx", "--out", "no/mine.yaml"], "--out: expected a folder that is there, got no"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(arguments: list[str], words: str, project: Project) -> None:
    write(project.folder / "step.onnx", STEP)
    outside_weights(project.folder / "lost.onnx")
    before = sorted(path.name for path in project.folder.iterdir())
    ended = project.run("init", *arguments)
    assert ended.code == 2, ended
    assert words in ended.message
    assert sorted(path.name for path in project.folder.iterdir()) == before
