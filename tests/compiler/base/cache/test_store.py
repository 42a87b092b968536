"""The stage cache answers with a complete, intact entry or with nothing, whatever happens to its files."""

import concurrent.futures
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from compiler.base.cache import store
from compiler.base.cache.dependencies import file_at, state_of
from compiler.base.cache.store import StageCache, default_folder, distrust, open_cache, stage_key

FILES = {"graph.onnx": b"graph", "weights/a.bin": b"\0" * 100}


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def read_all(folder: Path) -> dict[str, bytes]:
    names = (file for file in folder.rglob("*") if file.is_file() and file.name != "digests.json")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in names}


def leftovers(cache: StageCache) -> list[Path]:
    return list((cache.folder / "partial").glob("*"))


def test_entry_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    cache, source = StageCache(tmp_path / "cache"), tmp_path / "big.bin"
    source.write_bytes(b"big")
    key = stage_key("capture", b"model")
    assert cache.get(key) is None
    stored = cache.put(key, {**FILES, "big.bin": source})
    assert cache.get(key) == stored
    assert read_all(stored) == {**FILES, "big.bin": b"big"}
    assert source.exists()
    assert not leftovers(cache)


def test_keys_tell_parts_and_types_apart() -> None:
    parts: list[tuple[bytes | str, ...]] = [("ab", "c"), ("a", "bc"), ("abc",), (b"ab", "c"), ("ab", "c", ""), ()]
    assert len({stage_key(*some) for some in parts}) == len(parts)
    assert stage_key("ab", "c") == stage_key("ab", "c")


@hypothesis.given(*[strategies.lists(strategies.one_of(strategies.text(), strategies.binary()), max_size=4)] * 2)
def test_keys_are_equal_only_for_equal_parts(first: list[bytes | str], second: list[bytes | str]) -> None:
    assert (stage_key(*first) == stage_key(*second)) == (first == second)


def test_storing_the_same_key_again_keeps_the_entry(tmp_path: Path) -> None:
    cache, key = StageCache(tmp_path), stage_key("x")
    first = cache.put(key, FILES)
    inode = (first / "graph.onnx").stat().st_ino
    assert cache.put(key, FILES) == first
    assert (first / "graph.onnx").stat().st_ino == inode
    assert not leftovers(cache)


# Damage


def truncate(entry: Path) -> None:
    (entry / "graph.onnx").write_bytes(b"gra")


def alter(entry: Path) -> None:
    (entry / "graph.onnx").write_bytes(b"GRAPH")


def remove_file(entry: Path) -> None:
    (entry / "graph.onnx").unlink()


def add_file(entry: Path) -> None:
    (entry / "more.bin").write_bytes(b"")


def replace_by_folder(entry: Path) -> None:
    (entry / "graph.onnx").unlink()
    (entry / "graph.onnx").mkdir()


def remove_digests(entry: Path) -> None:
    (entry / "digests.json").unlink()


def break_digests(entry: Path) -> None:
    (entry / "digests.json").write_bytes(b"\xff{")


def nest_digests(entry: Path) -> None:
    (entry / "digests.json").write_text("[" * 100_000)


def empty_digests(entry: Path) -> None:
    (entry / "digests.json").write_text("{}")


def misshape_digests(entry: Path) -> None:
    (entry / "digests.json").write_text(
        json.dumps({"files": {"graph.onnx": 1, "weights/a.bin": {}}, "dependencies": {}})
    )


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        alter,
        remove_file,
        add_file,
        replace_by_folder,
        remove_digests,
        break_digests,
        nest_digests,
        empty_digests,
        misshape_digests,
    ],
)
def test_damaged_entry_is_dropped_and_can_be_stored_again(damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    cache, key = StageCache(tmp_path), stage_key("x")
    damage(cache.put(key, FILES))
    assert cache.get(key) is None
    assert not (tmp_path / key[:2] / key).exists()
    assert read_all(cache.put(key, FILES)) == FILES


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "digests.json"])
def test_names_outside_the_entry_are_refused(name: str, tmp_path: Path) -> None:
    cache = StageCache(tmp_path / "cache")
    with pytest.raises(ValueError, match="expected a relative name below the entry"):
        cache.put(stage_key("x"), {name: b""})
    assert cache.get(stage_key("x")) is None
    assert not leftovers(cache)
    assert not (tmp_path / "outside").exists()


# Failures while writing


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failure_while_writing_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> str:
        raise error

    cache, key = StageCache(tmp_path), stage_key("x")
    monkeypatch.setattr(store, "hash_file", fail)
    with pytest.raises(type(error)):
        cache.put(key, FILES)
    monkeypatch.undo()
    assert cache.get(key) is None
    assert not leftovers(cache)
    assert cache.total_bytes() == 0


def test_disk_that_takes_no_more_is_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from compiler.base.cache.store import StageCache, stage_key\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: StageCache(Path(sys.argv[1])).put(stage_key('x'), {'small': b'1', 'zlarge': b'1' * 10_000})\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == errno.EFBIG
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_store_that_cannot_be_written_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, key = StageCache(tmp_path), stage_key("x")
    entry = cache.put(key, FILES)

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "rename", refuse)
    assert cache.get(key) == entry
    truncate(entry)
    assert cache.get(key) is None


# Size


def test_least_recently_used_entries_leave_first(tmp_path: Path) -> None:
    clock = Clock()
    cache = StageCache(tmp_path, max_bytes=3500, keep_s=10, now=clock)
    keys = [stage_key(str(index)) for index in range(4)]
    for key in keys[:3]:
        cache.put(key, {"a": b"x" * 1000})
        clock.now_s += 100
    assert cache.get(keys[0]) is not None
    clock.now_s += 100
    cache.put(keys[3], {"a": b"x" * 1000})
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]
    assert cache.total_bytes() <= 3500


def test_entries_in_use_stay_even_above_the_bound(tmp_path: Path) -> None:
    clock = Clock()
    cache = StageCache(tmp_path, max_bytes=0, keep_s=10, now=clock)
    first, second = stage_key("1"), stage_key("2")
    cache.put(first, FILES)
    clock.now_s += 5
    cache.put(second, FILES)
    assert cache.get(first) is not None
    clock.now_s += 100
    cache.put(second, FILES)
    assert cache.get(first) is None
    assert cache.get(second) is not None


def test_newest_entry_stays_whatever_the_bound(tmp_path: Path) -> None:
    cache = StageCache(tmp_path, max_bytes=0, keep_s=0)
    cache.put(stage_key("1"), FILES)
    cache.put(stage_key("2"), FILES)
    assert cache.get(stage_key("1")) is None
    assert cache.get(stage_key("2")) is not None


def test_what_a_killed_builder_left_is_removed_after_a_day(tmp_path: Path) -> None:
    cache = StageCache(tmp_path)
    old, young = tmp_path / "partial" / "old", tmp_path / "partial" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"")
    os.utime(old, (1, 1))
    cache.put(stage_key("x"), FILES)
    assert (old.exists(), young.exists()) == (False, True)


# Several builders


def test_builders_may_share_a_store(tmp_path: Path) -> None:
    def build(seed: int) -> None:
        cache = StageCache(tmp_path, max_bytes=2000, keep_s=0)
        for number in range(15):
            key = stage_key(str((seed + number) % 5))
            if cache.get(key) is None:
                cache.put(key, {"a": key.encode() * 10})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(build, range(8)))
    assert not leftovers(StageCache(tmp_path))


def test_builder_that_comes_second_keeps_the_first_ones_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, other, key = StageCache(tmp_path), StageCache(tmp_path), stage_key("x")
    rename = Path.rename

    def rename_late(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        other.put(key, {"a": b"other"})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_late)
    assert read_all(cache.put(key, {"a": b"mine"})) == {"a": b"other"}
    assert not leftovers(cache)


# What is known only afterwards


def recorded(*paths: Path | str) -> dict[str, str]:
    return {each: state_of(each) for each in (file_at(str(path)) for path in paths)}


def test_entry_with_dependencies_is_valid_while_they_keep_their_content(tmp_path: Path) -> None:
    cache, key = StageCache(tmp_path / "cache"), stage_key("factory")
    sources = [tmp_path / "model.py", tmp_path / "layers.py"]
    for source in sources:
        source.write_text("one")
    assert cache.get_with_dependencies(key) is None
    entry = cache.put_with_dependencies(key, FILES, recorded(*sources))
    assert cache.get_with_dependencies(key) == entry
    os.utime(sources[0], (1, 1))  # content counts, not time
    assert cache.get_with_dependencies(key) == entry
    sources[1].write_text("two")
    assert cache.get_with_dependencies(key) is None
    sources[1].write_text("one")
    assert cache.get_with_dependencies(key) == entry
    sources[1].unlink()
    assert cache.get_with_dependencies(key) is None


def test_entry_with_dependencies_is_replaced(tmp_path: Path) -> None:
    cache, key, source = StageCache(tmp_path / "cache"), stage_key("factory"), tmp_path / "model.py"
    source.write_text("one")
    cache.put_with_dependencies(key, {"a": b"one"}, recorded(source))
    source.write_text("two")
    cache.put_with_dependencies(key, {"a": b"two"}, recorded(source))
    found = cache.get_with_dependencies(key)
    assert found is not None
    assert read_all(found) == {"a": b"two"}
    assert not leftovers(cache)


def test_checkouts_share_a_store_without_sharing_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, key = StageCache(tmp_path / "cache"), stage_key("factory")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(name)
    monkeypatch.chdir(tmp_path / "one")
    cache.put_with_dependencies(key, FILES, recorded("model.py"))
    assert cache.get_with_dependencies(key) is not None
    monkeypatch.chdir(tmp_path / "two")
    assert cache.get_with_dependencies(key) is None
    (tmp_path / "two" / "model.py").write_text("one")
    assert cache.get_with_dependencies(key) is not None


def test_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_CACHE", raising=False)
    assert default_folder() == Path(".cache/slipway")
    monkeypatch.setenv("SLIPWAY_CACHE", "/elsewhere")
    assert default_folder() == Path("/elsewhere")


def test_a_new_cache_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        StageCache(tmp_path / "above" / "cache").put("k" * 64, FILES)
    finally:
        os.umask(before)
    assert (tmp_path / "above" / "cache").stat().st_mode & 0o777 == 0o700
    assert distrust(tmp_path / "above" / "cache") == distrust(tmp_path / "absent") == ""


def test_a_cache_of_others_or_that_others_may_write_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    assert distrust(tmp_path) == "every user may write to it"
    monkeypatch.setattr(store, "_is_of_one_user", lambda group, user: False)
    tmp_path.chmod(0o775)
    assert distrust(tmp_path) == "other users of its group may write to it"
    monkeypatch.setattr(store, "_is_of_one_user", lambda group, user: True)
    assert distrust(tmp_path) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_001)
    if tmp_path.stat().st_uid:
        assert distrust(tmp_path).startswith("it belongs to another user, ")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="gives files to others, which root alone may")
def test_a_cache_that_is_anothers_is_not_trusted_and_nothing_is_read_from_it(tmp_path: Path) -> None:
    folder, told = tmp_path / "cache", list[str]()
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    assert open_cache(folder, told.append) is None
    assert "as it belongs to another user, nobody; name a folder of your own with --cache" in told[0]
    os.chown(folder, 0, 65534)
    folder.chmod(0o770)
    assert distrust(folder) == "other users of its group may write to it"
    (tmp_path / "link").symlink_to(folder)
    assert distrust(tmp_path / "link") == "other users of its group may write to it"


def test_a_cache_that_others_may_put_another_in_the_place_of_is_not_trusted(tmp_path: Path) -> None:
    above, told = tmp_path / "above", list[str]()
    above.mkdir()
    above.chmod(0o777)
    assert open_cache(above / "mine" / "cache", told.append) is None
    assert f"every user may put another in its place, as all may write to {above.resolve()}; name a" in told[0]
    above.chmod(0o1777)  # as of /tmp: what is its owner's stays there
    assert open_cache(above / "mine" / "cache", told.append) is not None


def test_a_cache_is_there_before_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[bool]()

    def look(folder: Path) -> str:
        seen.append(folder.is_dir())
        return ""

    monkeypatch.setattr(store, "distrust", look)
    assert open_cache(tmp_path / "cache", print) is not None
    assert seen == [True] and (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_user_without_a_name_is_named_by_number() -> None:
    assert store._name_of_user(4_000_000_001) == "4000000001"
    assert not store._is_of_one_user(4_000_000_001, 4_000_000_001)


def test_a_cache_that_is_not_trusted_is_not_opened_and_that_is_told(tmp_path: Path) -> None:
    told = list[str]()
    assert open_cache(tmp_path / "mine", told.append) is not None and told == []
    tmp_path.chmod(0o777)
    assert open_cache(tmp_path, told.append) is None
    assert told == [
        f"{tmp_path}: not used as a cache, as every user may write to it; name a folder of your own with --cache, or "
        "remove this one"
    ]
