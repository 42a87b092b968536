"""dependencies: what a result hangs on is written down and compared, and nothing hashes like nothing."""

import os
import shutil
from pathlib import Path

import pytest

from compiler.base.cache.dependencies import (
    ABSENT,
    OWN_CODE,
    SLIPWAY_DIR,
    code_digest,
    entries_at,
    file_at,
    folder_at,
    hash_path,
    holds,
    installed_packages,
    is_installed,
    is_own,
    kinds_at,
    link_at,
    module_named,
    names_of_variables,
    portable,
    state_of,
    times_at,
    variable_named,
)


def test_hash_of_a_folder_sees_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.flac").write_bytes(b"1")
    (folder / "sub" / "b.flac").write_bytes(b"2")
    first = hash_path(folder)
    shutil.copytree(folder, tmp_path / "copy")
    assert hash_path(tmp_path / "copy") == first
    (folder / "a.flac").rename(folder / "c.flac")
    renamed = hash_path(folder)
    (folder / "c.flac").write_bytes(b"3")
    assert len({first, renamed, hash_path(folder), hash_path(folder / "c.flac")}) == 4


def test_hash_of_a_folder_sees_behind_links_and_ends_in_circles(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "a.flac").write_bytes(b"1")
    (folder / "train").symlink_to(elsewhere)
    (folder / "back").symlink_to(folder)
    first = hash_path(folder)
    (elsewhere / "a.flac").write_bytes(b"2")
    assert hash_path(folder) != first


def test_nothing_has_no_hash(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a file or folder to hash, got nothing"):
        hash_path(tmp_path / "absent")


def test_every_file_of_the_house_is_in_its_hash(tmp_path: Path) -> None:
    copies = [shutil.copytree(folder, tmp_path / folder.name) for folder in OWN_CODE]
    digests = [code_digest(copies)]
    assert digests[0] == code_digest()
    for name in (
        "compiler/build/capture/torch_module.py",
        "compiler/passes/simplify.py",
        "runtime_lite/format/manifest.py",
        "compiler/front_door.py",
    ):
        with (tmp_path / name).open("a") as file:
            file.write("#")
        digests.append(code_digest(copies))
    (tmp_path / "compiler/build/capture/torch_module.py").rename(tmp_path / "compiler/passes/capture.py")
    digests.append(code_digest(copies))
    assert len(set(digests)) == len(digests)
    shutil.rmtree(tmp_path / "runtime_lite")
    with pytest.raises(FileNotFoundError):
        code_digest(copies)


def test_states_change_with_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder, variable = file_at(str(tmp_path / "a")), folder_at(str(tmp_path)), variable_named("SLIPWAY_TRIAL")
    recorded = {each: state_of(each) for each in (file, folder, variable)}
    assert recorded[file] == recorded[variable] == ABSENT and holds(recorded)
    (tmp_path / "a").write_text("1")
    monkeypatch.setenv("SLIPWAY_TRIAL", "secret")
    assert all(state_of(each) != state for each, state in recorded.items())
    assert "secret" not in state_of(variable)
    assert state_of(file_at(str(tmp_path))) == "folder"
    assert state_of("rumour of a file") == ABSENT


def test_links_times_and_entries_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "inner").mkdir()
    of_file = [times_at(str(tmp_path / "a")), entries_at(str(tmp_path))]
    of_names = [
        folder_at(str(tmp_path)),
        kinds_at(str(tmp_path)),
        link_at(str(tmp_path / "link")),
        link_at(str(tmp_path)),
    ]
    before = {each: state_of(each) for each in (*of_file, *of_names)}
    assert len(set(before.values())) == len(before) and before[link_at(str(tmp_path))] == "no link"
    os.utime(tmp_path / "a", (1, 1))
    assert {each for each in before if state_of(each) != before[each]} == set(of_file)
    (tmp_path / "inner").rmdir()
    (tmp_path / "inner").touch()
    assert state_of(kinds_at(str(tmp_path))) != before[kinds_at(str(tmp_path))]
    assert state_of(folder_at(str(tmp_path))) == before[folder_at(str(tmp_path))]
    assert state_of(names_of_variables()) not in (ABSENT, state_of(variable_named("PATH")))


def test_paths_below_the_current_directory_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert portable(str(tmp_path / "a" / "b")) == portable("a/b") == "a/b"
    assert portable(str(tmp_path)) == "."
    assert portable("/etc/hosts") == "/etc/hosts"


def test_a_link_that_leads_elsewhere_is_another_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "weights.pt"
    link.symlink_to("one")
    before = state_of(file_at(str(link)))
    link.unlink()
    link.symlink_to("two")
    assert state_of(file_at(str(link))) != before


def test_a_module_in_front_of_another_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, here = tmp_path / "recipes", tmp_path / "here"
    recipe.mkdir()
    here.mkdir()
    (recipe / "some_model.py").write_text("")
    monkeypatch.chdir(here)
    dependency = module_named("some_model", recipe)
    before = state_of(dependency)
    assert before == str(recipe / "some_model.py")
    (here / "some_model.py").write_text("")
    os.utime(here, (1, 1))  # the import system looks again when a folder has another time
    assert state_of(dependency) == "some_model.py"
    assert state_of(module_named("no_such_module_anywhere", recipe)) == ABSENT
    assert state_of(module_named("numpy", recipe)) == "installed"


def test_installed_and_own_files_are_told_apart() -> None:
    assert is_installed(os.__file__) and is_installed(str(pytest.__file__)) and not is_installed(__file__)
    assert (
        is_own(str(SLIPWAY_DIR / "compiler/graph/model.py"))
        and is_own(str(SLIPWAY_DIR / "build.py"))
        and not is_own(__file__)
    )
    assert any(name.startswith("numpy-") for name in installed_packages())
