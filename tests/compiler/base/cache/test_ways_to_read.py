"""Every way to read what a result follows from: where it is changed, nothing kept is used, or nothing was kept."""

import dataclasses
import gzip
import importlib
import linecache
import os
import posix
import shutil
import sqlite3
import sys
import tarfile
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import sentencepiece
import soundfile
import torch
from safetensors.numpy import save_file

from compiler.base.cache import imported_sources
from compiler.base.cache.read_tracer import READ_TRACER
from compiler.base.cache.results import ANEW, StageResults
from compiler.base.cache.store import StageCache
from compiler.recipe.user_code.callables import importable, resolve
from tests.kit.graphs import parse

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

KEY = "0123456789"


def texts(number: int) -> None:
    """Files of every kind that says its number."""
    Path("text.txt").write_text(f"{number}\n")
    Path("numbered.py").write_text(f"NUMBER = {number}\n")
    Path("numbers.csv").write_text(f"number\n{number}\n")
    Path("numbers.json").write_text(f'{{"number": {number}}}')
    Path("settings.ini").write_text(f"[a]\nnumber = {number}\n")
    Path("settings.toml").write_text(f"number = {number}\n")
    Path("settings.yaml").write_text(f"number: {number}\n")
    Path("folder").mkdir()
    Path("folder/text.txt").write_text(f"{number}\n")
    for at in range(number):
        Path(f"folder/{at}.flac").touch()
    if number > 1:
        Path("late.txt").touch()
        Path("fancy.py").write_text("NUMBER = 2\n")
        Path("colorsys.py").write_text("NUMBER = 2\n")
        os.symlink("nowhere", "dangling")
    os.symlink("folder" if number == 1 else "text.txt", "link")
    Path("package").mkdir()
    Path("package/__init__.py").touch()
    Path("package/text.txt").write_text(f"{number}\n")


def archives(number: int) -> None:
    texts(number)
    with zipfile.ZipFile("archive.zip", "w") as archive:
        archive.writestr("zipped.py", f"NUMBER = {number}\n")
    with tarfile.open("archive.tar", "w") as tar:
        tar.add("text.txt")
    Path("text.gz").write_bytes(gzip.compress(str(number).encode()))


def arrays(number: int) -> None:
    np.save("numbers.npy", np.full(4, number, np.float32))
    np.full(4, number, np.float32).tofile("numbers.raw")
    Path("numbers.txt").write_text(f"{number} {number}\n")
    save_file({"x": np.full(4, number, np.float32)}, "weights.safetensors")
    torch.save({"x": torch.full((4,), number)}, "weights.pt")
    weight = np.full(4, number, np.float32)
    soundfile.write("sound.wav", np.full(16, number / 8, np.float32), 8000)
    model = ir.to_proto(parse("(float[4] x, float[4] w) => (float[4] y) { y = Add(x, w) }", {"w": weight}))
    onnx.save(model, "small.onnx")
    onnx.save(model, "apart.onnx", save_as_external_data=True, location="apart.weights", size_threshold=0)


def databases(number: int) -> None:
    with sqlite3.connect("data.sqlite") as database:
        database.execute("create table t (number int)")
        database.execute("insert into t values (?)", (number,))
    database.close()


def jit(number: int) -> None:
    class Plus(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + number

    traced = torch.jit.trace(Plus(), torch.zeros(1))  # type: ignore[no-untyped-call]
    traced.save("jit.pt")


def exported(number: int) -> None:
    class Plus(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.number = torch.nn.Parameter(torch.full((1,), float(number)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.number

    torch.export.save(torch.export.export(Plus(), (torch.zeros(1),)), "exported.pt2")


def variable(number: int) -> None:
    os.environ["TRIAL_NUMBER"] = str(number)
    posix.environ[b"TRIAL_NUMBER"] = str(number).encode()
    if number > 1:
        os.environ["TRIAL_LATE"] = ""


def arguments(number: int) -> None:
    texts(number)
    sys.argv = ["train.py", "--number", str(number)]


def attributes(number: int) -> None:
    texts(number)
    os.setxattr("text.txt", "user.number", str(number).encode())


@dataclasses.dataclass(frozen=True)
class Way:
    """How something is read.

    Attributes:
        body: of the user's function.
        make: writes what it reads.
        kept: whether the result is kept.
    """

    body: str
    make: Callable[[int], None] = texts
    kept: bool = True


IN_PROCESS = {
    "open": Way("return open('text.txt').read()"),
    "io.open": Way("import io; return io.open('text.txt').read()"),
    "io.open_code": Way("import io, os; return io.open_code(os.path.abspath('text.txt')).read()"),
    "io.FileIO": Way("import io; return io.FileIO('text.txt').read()"),
    "_pyio": Way("import _pyio; return _pyio.open('text.txt').read()"),
    "os.open": Way("import os; return os.read(os.open('text.txt', os.O_RDONLY), 9)"),
    "posix.open": Way("import posix; return posix.read(posix.open('text.txt', posix.O_RDONLY), 9)"),
    "os.open in an open folder": Way(
        "import os; at = os.open('folder', os.O_RDONLY); return os.read(os.open('text.txt', os.O_RDONLY, dir_fd=at), 9)"
    ),
    "an opener in an open folder": Way(
        """import os
    at = os.open('folder', os.O_RDONLY)
    return open('text.txt', opener=lambda path, flags: os.open(path, flags, dir_fd=at)).read()"""
    ),
    "os.open, kept by a name of its own": Way(
        "from os import O_RDONLY, open, read; return read(open('text.txt', O_RDONLY), 9)"
    ),
    "pathlib": Way("from pathlib import Path; return Path('text.txt').read_text()"),
    "appended, then read": Way("open('text.txt', 'a').close(); return open('text.txt').read()"),
    "codecs": Way("import codecs; return codecs.open('text.txt').read()"),
    "fileinput": Way("import fileinput; return list(fileinput.input(['text.txt']))"),
    "linecache": Way("import linecache; return linecache.getline('text.txt', 1)"),
    "tokenize": Way("import tokenize; return tokenize.open('numbered.py').read()"),
    "inspect": Way("import inspect, numbered; return inspect.getsource(numbered)"),
    "csv": Way("import csv; return list(csv.reader(open('numbers.csv')))"),
    "json": Way("import json; return json.load(open('numbers.json'))"),
    "configparser": Way(
        "import configparser; p = configparser.ConfigParser(); p.read('settings.ini'); return p['a']['number']"
    ),
    "tomllib": Way("import tomllib; return tomllib.load(open('settings.toml', 'rb'))"),
    "yaml": Way("import yaml; return yaml.safe_load(open('settings.yaml'))"),
    "gzip": Way("import gzip; return gzip.open('text.gz').read()", archives),
    "tarfile": Way("import tarfile; return tarfile.open('archive.tar').extractfile('text.txt').read()", archives),
    "zipfile": Way("import zipfile; return zipfile.ZipFile('archive.zip').read('zipped.py')", archives),
    "zipimport": Way(
        "import sys; sys.path.insert(0, 'archive.zip'); import zipped; sys.path.pop(0); return zipped.NUMBER", archives
    ),
    "zipimporter": Way("import zipimport; return zipimport.zipimporter('archive.zip').get_data('zipped.py')", archives),
    "pkgutil.get_data": Way("import pkgutil; return pkgutil.get_data('package', 'text.txt')"),
    "importlib.resources": Way(
        "from importlib.resources import files; return files('package').joinpath('text.txt').read_text()"
    ),
    "importlib.resources.open_text": Way(
        "import importlib.resources as r; return r.open_text('package', 'text.txt').read()"
    ),
    "a loader": Way(
        "from importlib.machinery import SourceFileLoader as L; return L('a', 'text.txt').get_data('text.txt')"
    ),
    "a loader that runs": Way(
        """import importlib.util
    spec = importlib.util.spec_from_file_location('loaded', 'numbered.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.NUMBER"""
    ),
    "runpy": Way("import runpy; return runpy.run_path('numbered.py')['NUMBER']"),
    "exec of an import": Way("names = {}; exec('from numbered import NUMBER', names); return names['NUMBER']"),
    "import_module of a name made at run time": Way(
        "import importlib; return importlib.import_module('num' + 'bered').NUMBER"
    ),
    "a module that comes later": Way(
        "try:\n        import fancy\n    except ImportError:\n        return 1\n    return 2"
    ),
    "find_spec": Way("import importlib.util; return importlib.util.find_spec('fan' + 'cy') is None"),
    "a module in the place of the standard library's": Way("import colorsys; return hasattr(colorsys, 'NUMBER')"),
    "mmap": Way(
        "import mmap, os; return bytes(mmap.mmap(os.open('text.txt', os.O_RDONLY), 0, access=mmap.ACCESS_READ))"
    ),
    "np.load": Way("import numpy as np; return np.load('numbers.npy')", arrays),
    "np.load, mapped": Way("import numpy as np; return np.load('numbers.npy', mmap_mode='r')[0]", arrays),
    "np.memmap": Way("import numpy as np; return np.memmap('numbers.raw', np.float32, 'r')[0]", arrays),
    "np.fromfile": Way("import numpy as np; return np.fromfile('numbers.raw', np.float32)", arrays),
    "np.loadtxt": Way("import numpy as np; return np.loadtxt('numbers.txt')", arrays),
    "torch.load": Way("import torch; return torch.load('weights.pt')", arrays),
    "torch.load, mapped": Way("import torch; return torch.load('weights.pt', mmap=True)['x'][0]", arrays),
    "torch.from_file": Way("import torch; return torch.from_file('numbers.raw', size=4)", arrays),
    "UntypedStorage.from_file": Way(
        "import torch; return list(torch.UntypedStorage.from_file('numbers.raw', False, 16))", arrays
    ),
    "PyTorchFileReader": Way(
        "import torch; return torch._C.PyTorchFileReader('weights.pt').get_record('data/0')", arrays
    ),
    "safe_open": Way(
        "from safetensors import safe_open; return safe_open('weights.safetensors', 'np').get_tensor('x')", arrays
    ),
    "safetensors.numpy": Way(
        "from safetensors.numpy import load_file; return load_file('weights.safetensors')", arrays
    ),
    "safetensors.torch": Way(
        "from safetensors.torch import load_file; return load_file('weights.safetensors')", arrays
    ),
    "soundfile": Way("import soundfile; return soundfile.read('sound.wav')[0]", arrays),
    "soundfile.info": Way("import soundfile; return soundfile.SoundFile('sound.wav').read(1)", arrays),
    "onnx.load": Way("import onnx; return onnx.load('small.onnx').SerializeToString()", arrays),
    "onnx.load, weights apart": Way(
        "import onnx; return onnx.load('apart.onnx').graph.initializer[0].raw_data", arrays
    ),
    "onnxruntime": Way(
        """import numpy, onnxruntime
    session = onnxruntime.InferenceSession('small.onnx', providers=['CPUExecutionProvider'])
    return session.run(None, {'x': numpy.zeros(4, 'f')})""",
        arrays,
    ),
    "onnxruntime, weights apart": Way(
        """import numpy, onnxruntime
    session = onnxruntime.InferenceSession('apart.onnx', providers=['CPUExecutionProvider'])
    return session.run(None, {'x': numpy.zeros(4, 'f')})""",
        arrays,
    ),
    "os.path.exists": Way("import os; return os.path.exists('late.txt')"),
    "os.path.lexists": Way("import os; return os.path.lexists('dangling')"),
    "os.path.isfile": Way("import os; return os.path.isfile('link')"),
    "os.path.islink": Way("import os; return os.path.islink('dangling')"),
    "os.path.realpath": Way("import os; return os.path.realpath('link')"),
    "os.readlink": Way("import os; return os.readlink('link')"),
    "posix.stat": Way(
        "import posix\n    try:\n        posix.stat('late.txt')\n    except OSError:\n        return 1\n    return 2"
    ),
    "os.stat in an open folder": Way(
        """import os
    try:
        os.stat('1.flac', dir_fd=os.open('folder', os.O_RDONLY))
    except OSError:
        return 1
    return 2"""
    ),
    "os.access": Way("import os; return os.access('late.txt', os.R_OK)"),
    "os.listdir": Way("import os; return os.listdir('folder')"),
    "os.listdir of an open folder": Way("import os; return os.listdir(os.open('folder', os.O_RDONLY))"),
    "os.scandir": Way("import os; return sorted(entry.name for entry in os.scandir('folder'))"),
    "os.walk": Way("import os; return sorted(os.walk('.'))"),
    "os.fwalk": Way("import os; return sorted(names for _, _, names, _ in os.fwalk('folder'))"),
    "glob": Way("import glob; return sorted(glob.glob('folder/*.flac'))"),
    "Path.glob": Way("from pathlib import Path; return sorted(Path().rglob('*.flac'))"),
    "os.environ": Way("import os; return os.environ['TRIAL_NUMBER']", variable),
    "os.getenv": Way("import os; return os.getenv('TRIAL_NUMBER')", variable),
    "posix.environ": Way("import posix; return posix.environ[b'TRIAL_NUMBER']", variable),
    "all of posix.environ": Way("import posix; return dict(posix.environ)", variable),
    "os.environb": Way("import os; return os.environb[b'TRIAL_NUMBER']", variable),
    "all of os.environ": Way("import os; return 'TRIAL_LATE' in list(os.environ)", variable),
    "sys.argv": Way("import sys; return sys.argv[2]", arguments),
    "argparse": Way(
        """import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument('--number')
    return parser.parse_args().number""",
        arguments,
    ),
    "os.getxattr": Way("import os; return os.getxattr('text.txt', 'user.number')", attributes),
    "os.listxattr": Way(
        "import os; return os.listxattr('text.txt')",
        lambda number: attributes(number) if number > 1 else texts(number),
    ),
    "shutil.copystat": Way(
        """import os, shutil
    open('written.txt', 'w').close()
    shutil.copystat('text.txt', 'written.txt')
    return os.getxattr('written.txt', 'user.number')""",
        attributes,
    ),
    "expandvars": Way("import os; return os.path.expandvars('$TRIAL_NUMBER')", variable),
}

OUT_OF_SIGHT = {
    "subprocess": Way("import subprocess; return subprocess.check_output(['cat', 'text.txt'])", kept=False),
    "os.popen": Way("import os; return os.popen('cat text.txt').read()", kept=False),
    "os.system": Way("import os; os.system('cp text.txt copy.txt'); return open('copy.txt').read()", kept=False),
    "os.posix_spawn": Way(
        """import os
    os.waitpid(os.posix_spawn('/bin/cp', ['cp', 'text.txt', 'copy.txt'], {}), 0)
    return open('copy.txt').read()""",
        kept=False,
    ),
    "fork": Way(
        """import os
    if (child := os.fork()) == 0:
        os._exit(int(open('text.txt').read()))
    return os.waitpid(child, 0)[1]""",
        kept=False,
    ),
    "sqlite3": Way(
        "import sqlite3; return sqlite3.connect('data.sqlite').execute('select * from t').fetchall()", databases, False
    ),
    "ctypes": Way(
        """import ctypes
    libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(2)
    libc.fopen.restype = ctypes.c_void_p
    libc.fgets(buffer, 2, ctypes.c_void_p(libc.fopen(b'text.txt', b'r')))
    return buffer.value""",
        kept=False,
    ),
}  # fmt: skip

SLOW = {
    "multiprocessing, spawned": Way(
        """import multiprocessing, pathlib
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        return pool.map(pathlib.Path.read_text, [pathlib.Path('text.txt')])""",
        kept=False,
    ),
    "torch.jit.load": Way("import torch; return torch.jit.load('jit.pt')(torch.zeros(1))", jit),
    "torch.export.load": Way(
        "import torch; return torch.export.load('exported.pt2').module()(torch.zeros(1))", exported
    ),
}


def pieces(number: int) -> None:
    """A model of word pieces."""
    texts(number)
    words = ("one", "two")[:number]
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([" ".join(words)] * 9), model_prefix="pieces", vocab_size=7 + number, minloglevel=9
    )


IN_PROCESS["sentencepiece"] = Way(
    "import sentencepiece; return sentencepiece.SentencePieceProcessor('pieces.model').get_piece_size()", pieces
)

HABITS = {
    "arguments and a configuration in YAML": Way(
        """import argparse, dataclasses, logging, math, typing, yaml
    parser = argparse.ArgumentParser()
    parser.add_argument('--config', default='settings.yaml')
    return yaml.safe_load(open(parser.parse_args([]).config))['number']"""
    ),
    "composed configurations": Way(
        """import copy, os, pathlib, packaging.version, yaml
    assert packaging.version.Version('2.1') > packaging.version.Version('1.9')
    root = pathlib.Path(__file__).parent
    parts = [yaml.safe_load(path.read_text()) for path in sorted(root.glob('*.yaml'))]
    return {key: value for part in parts for key, value in part.items()}"""
    ),
    "weights in safetensors": Way(
        """import torch, safetensors.torch
    layer = torch.nn.Linear(4, 1, bias=False)
    layer.load_state_dict({'weight': safetensors.torch.load_file('weights.safetensors')['x'][None]})
    return layer.weight.sum().item()""",
        arrays,
    ),
    "resources of a package": Way(
        """import importlib.resources
    with importlib.resources.as_file(importlib.resources.files('package') / 'text.txt') as path:
        return float(path.read_text())"""
    ),
    "a tokenizer and its files": Way(
        """import functools, json, os, re, sentencepiece, unicodedata
    name = os.path.join(os.path.dirname(__file__), 'pieces.model')
    return sentencepiece.SentencePieceProcessor(model_file=name).get_piece_size() if os.path.isfile(name) else 0""",
        pieces,
    ),
    "a log": Way(
        """import logging, pathlib, time
    pathlib.Path('logs').mkdir(exist_ok=True)
    logger, handler = logging.getLogger('users'), logging.FileHandler('logs/train.log')
    logger.addHandler(handler)
    logger.warning('%s begins', time.strftime('%H:%M'))
    logger.removeHandler(handler)
    handler.close()
    return open('text.txt').read()"""
    ),
    "a progress bar": Way(
        """import io, shutil, sys, rich.console, rich.progress
    console = rich.console.Console(file=io.StringIO())
    return [line for line in rich.progress.track(open('text.txt'), console=console)]"""
    ),
    "a version asked of git": Way(
        """import subprocess
    try:
        version = subprocess.check_output(['git', 'rev-parse', 'HEAD'], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        version = 'unknown'
    return open('text.txt').read()""",
        kept=False,
    ),
    "variables and seeds": Way(
        """import os, random, numpy, torch
    os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'
    os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
    number = int(os.environ.get('TRIAL_NUMBER', '0'))
    random.seed(number), numpy.random.seed(number), torch.manual_seed(number)
    assert os.environ['CUBLAS_WORKSPACE_CONFIG']
    return torch.rand(2).tolist()""",
        variable,
    ),
    "a model of another runtime for pictures and sounds": Way(
        """import os, tempfile, onnxruntime, soundfile, fsspec, jiwer, kaldi_native_fbank
    os.environ.setdefault('MPLBACKEND', 'Agg')
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'picture.txt'), 'w') as file:
            file.write('1')
        assert os.listdir(folder) and open(os.path.join(folder, 'picture.txt')).read()
    return soundfile.read('sound.wav')[0].sum(), onnxruntime.get_available_providers()""",
        arrays,
    ),
}
"""What the code of training repositories does and imports."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(imported_sources, "_own_modules", lambda: ["users"])  # not those of all tests
    yield tmp_path / "work"
    forget()
    for name in ("TRIAL_NUMBER", "TRIAL_LATE"):
        os.environ.pop(name, None)
        posix.environ.pop(name.encode(), None)


def forget() -> None:
    """As a new process would begin."""
    here = os.path.join(os.getcwd(), "")
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(here):
            del sys.modules[name]
    for name in ("zipped", "colorsys"):
        sys.modules.pop(name, None)
    linecache.clearcache()
    vars(zipimport)["_zip_directory_cache"].clear()
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    READ_TRACER.forget()


def prepare(way: Way, number: int, folder: Path) -> None:
    """Files that say a number, and the user's module that reads them."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    way.make(number)
    Path("users.py").write_text(f"def read():\n    {way.body}\n")
    os.utime("users.py", (1, 1))
    forget()


def built(results: StageResults) -> tuple[str, str]:
    """What the user's function gives, and why that is not kept."""
    with mock.patch.dict(os.environ):
        read = resolve("users:read", [results.folder], "here")
        with importable([results.folder]), READ_TRACER.watching():
            value = read()
        return repr(value), results.keep(KEY, {"value": b""}, {"users:read": False})


def check(way: Way, folder: Path, cache: Path) -> None:
    results = StageResults(StageCache(cache), folder)
    prepare(way, 1, folder)
    first, why = built(results)
    assert bool(why) != way.kept, why
    forget()
    assert (results.find(KEY) is not None) == way.kept, "it is found while nothing changes"
    prepare(way, 2, folder)
    assert results.find(KEY) is None, "it is stale"
    second, _ = built(results)
    assert first != second, "this does not read what was changed"


@pytest.mark.parametrize("name", IN_PROCESS)
def test_what_is_read_in_the_process_is_kept_until_it_changes(name: str, folder: Path, tmp_path: Path) -> None:
    check(IN_PROCESS[name], folder, tmp_path / "cache")


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_what_leads_out_of_sight_is_not_kept(name: str, folder: Path, tmp_path: Path) -> None:
    check(OUT_OF_SIGHT[name], folder, tmp_path / "cache")


@pytest.mark.parametrize("name", HABITS)
def test_what_training_repositories_do_is_kept(name: str, folder: Path, tmp_path: Path) -> None:
    check(HABITS[name], folder, tmp_path / "cache")


def test_what_is_not_kept_is_told_calmly(folder: Path, tmp_path: Path) -> None:
    prepare(HABITS["a version asked of git"], 1, folder)
    _, why = built(StageResults(StageCache(tmp_path / "cache"), folder))
    assert why == f"{ANEW}, as it is not known whether another process (subprocess.Popen) will give the same"


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_slow_ways(name: str, folder: Path, tmp_path: Path) -> None:
    check(SLOW[name], folder, tmp_path / "cache")


def test_there_are_sixty_ways() -> None:
    assert len({**IN_PROCESS, **OUT_OF_SIGHT, **SLOW}) >= 60
