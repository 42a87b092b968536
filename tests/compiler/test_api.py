"""Builds from Python: the same recipe, the same bundle, the same errors; and the caller's process stays as it was."""

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_lite
from compiler.api import compile, compile_recipe
from compiler.base.records.build_report import BuildReport
from compiler.build import pipeline
from compiler.build.pipeline import BuildOptions
from compiler.build.report.progress import Progress
from compiler.errors import GateFailed, InternalError, RecipeError, SlipwayError
from compiler.recipe.gates import ParityGate
from compiler.recipe.graph_parts import Input
from compiler.recipe.load import LoadedRecipe, load_recipe
from tests.docs.pages import ROOT, blocks
from tests.kit.models.project import digest_of


def write_readme(folder: Path) -> None:
    """The README's own model, data and recipe."""
    for block in blocks(ROOT / "README.md"):
        if block.name in ("my_model.py", "my_data.py", "mine.yaml"):
            (folder / str(block.name)).write_text(block.text, encoding="utf-8")


def arguments() -> dict[str, Any]:
    """What `mine.yaml` says, as arguments."""
    return {
        "inputs": {
            "features": {"shape": ["batch", 8, 40], "dtype": "float32"},
            "cache": {"shape": ("batch", "cached", 64), "dtype": "float32", "state": "next_cache"},
        },
        "outputs": ["logits", "next_cache"],
        "axes": {"batch": {"buckets": [1, 4]}, "cached": {"window": 64}},
        "data": {"verification": {"feeds": "my_data:verification", "count": 2}},
        "parity": {"max_abs": 1e-5, "chained_steps": 30},
        "name": "recogniser",
        "progress": False,
    }


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the README's files, which can be imported."""
    write_readme(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("my_model", "my_data"):
        sys.modules.pop(name, None)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LoadedRecipe, BuildOptions]]:
    """What the driver is asked for; it does nothing else."""
    asked: list[tuple[LoadedRecipe, BuildOptions]] = []

    def build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
        asked.append((loaded, options))
        return BuildReport(str(loaded.path), str(options.out))

    monkeypatch.setattr(pipeline, "build", build)
    return asked


def test_arguments_are_the_recipe_of_the_file(mine: Path, builds: list[tuple[LoadedRecipe, BuildOptions]]) -> None:
    from_file = load_recipe("mine.yaml").recipe.model_copy(update={"name": "recogniser"})
    report = compile("my_model:build", **arguments())
    given, options = builds[0]
    assert given.recipe == from_file
    assert (report.bundle, report.recipe, options.out) == ("dist/recogniser", "compile", Path("dist/recogniser"))
    assert options.cache is not None and not options.cache.knows_code


def test_records_serve_as_well_as_plain_values(mine: Path, builds: list[tuple[LoadedRecipe, BuildOptions]]) -> None:
    cache = Input(shape=("batch", "cached", 64), dtype="float32", state="next_cache")
    told = arguments()
    told["inputs"]["cache"] = cache
    told["parity"] = ParityGate(max_abs=1e-5, chained_steps=30)
    compile("my_model:build", **told)
    compile("my_model:build", **arguments())
    assert builds[0][0].recipe == builds[1][0].recipe
    compile_recipe(builds[0][0].recipe, progress=False)
    assert builds[2][0].recipe == builds[0][0].recipe
    compile_recipe("mine.yaml", out="elsewhere", cache=False, strict=True, progress=False)
    assert builds[3][1] == BuildOptions(Path("elsewhere"), strict=True, cache=None)


def test_functions_keep_the_names_by_which_they_are_found(
    mine: Path, builds: list[tuple[LoadedRecipe, BuildOptions]]
) -> None:
    import my_data  # type: ignore[import-not-found]
    import my_model  # type: ignore[import-not-found]

    streams = [[{"features": np.zeros((1, 8, 40), np.float32)}] * 3] * 2
    told = {
        **arguments(),
        "data": {"verification": streams, "calibration": {"feeds": my_data.verification, "count": 2}},
    }
    compile(my_model.build, **told)
    recipe = builds[0][0].recipe
    assert recipe.graphs["recogniser"].source.factory == "my_model:build"
    assert recipe.data.calibration is not None and recipe.data.calibration.feeds == "my_data:verification"
    assert (recipe.data.verification.feeds, recipe.data.verification.count) == (
        "passed_objects:data_verification_feeds",
        2,
    )


def parts(**changed: Any) -> dict[str, Any]:
    return {**arguments(), **changed}


@pytest.mark.parametrize(
    ("model", "told", "message"),
    [
        (
            7,
            parts(),
            "compile: expected a torch.nn.Module, a function that returns one, its name or the path of an ONNX",
        ),
        ("my_model:build", parts(axes={"batch": {"buckts": [1]}}), "did you mean 'buckets'"),
        (
            "my_model:build",
            parts(derive_step={}),
            "compile: graphs.recogniser.derive_step: expected a known key, got 'derive_step'",
        ),
        ("my_model:build", parts(data=None), "compile: data: expected"),
        (
            "my_model:build",
            parts(outputs=[object()]),
            "compile: graphs.recogniser.outputs.0: expected text, numbers, truths",
        ),
        ("my_model:build", parts(targets="onnx_statc"), "onnx_static"),
        ("my_model:buidl", parts(), "compile: graphs.recogniser.source.factory: expected a callable in my_model"),
        ("absent.onnx", parts(), "absent.onnx"),
    ],
)
def test_what_is_wrong_is_said_of_the_argument(model: Any, told: dict[str, Any], message: str, mine: Path) -> None:
    with pytest.raises(RecipeError) as wrong:
        compile(model, **told, cache=False)
    assert message in str(wrong.value)
    assert "passed_objects" not in sys.modules


def test_a_bug_is_raised_as_one_and_one_build_runs_at_a_time(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(*_: object) -> BuildReport:
        return compile("my_model:build", **arguments())

    monkeypatch.setattr(pipeline, "build", nested)
    with pytest.raises(RecipeError, match="expected one build at a time in a process"):
        compile("my_model:build", **arguments())
    monkeypatch.setattr(pipeline, "build", lambda *_: 1 / 0)
    with pytest.raises(InternalError, match="ZeroDivisionError") as wrong:
        compile("my_model:build", **arguments())
    assert isinstance(wrong.value.__cause__, ZeroDivisionError)


# Whole builds


@pytest.mark.slow
def test_a_module_builds_what_the_recipe_builds_and_stays_as_it_was(mine: Path) -> None:
    import my_data
    import my_model
    import torch

    torch.set_num_threads(2)
    module = my_model.build().train()
    weights, places = copy.deepcopy(module.state_dict()), {n: p.data_ptr() for n, p in module.named_parameters()}
    streams = list(my_data.verification())
    by_file = compile_recipe("mine.yaml", out="from_file", cache=False, progress=False)
    report = compile(module, **{**arguments(), "data": streams}, out="from_module", cache="kept")
    assert digest_of(mine / "from_module" / "graphs") == digest_of(mine / "from_file" / "graphs")
    assert [each.holds for each in report.gates] == [each.holds for each in by_file.gates]
    assert module.training and torch.get_num_threads() == 2
    assert places == {name: each.data_ptr() for name, each in module.named_parameters()}
    assert all(torch.equal(weights[name], each) for name, each in module.state_dict().items())
    with runtime_lite.Runtime() as runtime, runtime.load(report.bundle).open_stream() as stream:
        assert stream.push(streams[0][0])["logits"].shape == (1, 8, 30)


@pytest.mark.slow
def test_nothing_stale_comes_from_the_cache(mine: Path) -> None:
    """A module that the program changes between two builds, by its weights or through a global of its module."""
    import my_data
    import my_model
    import torch

    def answers(model: Any) -> np.ndarray:
        compile(model, **arguments(), out="bundle", cache="kept")
        with runtime_lite.Runtime() as runtime, runtime.load("bundle").open_stream() as stream:
            return stream.push(next(iter(my_data.verification()))[0])["logits"]

    module = my_model.build()
    first, again = answers(module), answers(module)
    assert np.array_equal(first, again)
    with torch.no_grad():
        module.output.bias += 1.0
    assert np.allclose(answers(module), first + 1.0, atol=1e-5)
    by_name = answers("my_model:build")
    assert np.array_equal(by_name, first)
    own: Callable[[], Any] = my_model.Recogniser

    def shifted() -> Any:
        made = own()
        with torch.no_grad():
            made.output.bias += 2.0
        return made

    my_model.Recogniser = shifted
    assert np.allclose(answers("my_model:build"), first + 2.0, atol=1e-5)


@pytest.mark.slow
def test_a_gate_that_fails_is_raised_with_its_exit_code(mine: Path) -> None:
    with pytest.raises(GateFailed) as failed:
        compile("my_model:build", **arguments(), gates={"budget": {"size_mb": 0.001}}, cache=False)
    assert isinstance(failed.value, SlipwayError) and failed.value.exit_code == 4
    assert not Path("dist/recogniser").exists()
