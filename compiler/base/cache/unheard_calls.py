"""Wraps functions that read files without raising an audit event, so that the read tracer records their calls.

A package with native code is answered for here if all its ways to open a file by name are: its calls are listed, or it
opens none. Any other is judged by its libraries (`native_code.py`). A listed call that a version of the package no
longer has makes the package one that nobody answers for.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]

Hear = Callable[[str, Arguments], None]
"""Takes in what a call means (`file`, `out`, ...), and what it was given."""


@dataclasses.dataclass(frozen=True)
class Unheard:
    """A call.

    Attributes:
        module: which has it.
        name: in the module: a function, or `Class.method`.
        means: the kind of read that the tracer records for it, such as `open`.
    """

    module: str
    name: str
    means: str = "first"


SYSTEM = (
    *(Unheard(module, name, name) for module in ("os", "posix") for name in ("stat", "lstat", "access", "readlink")),
    *(Unheard(module, "open", "open") for module in ("os", "posix")),
    Unheard("_posixsubprocess", "fork_exec", "out"),
    *(Unheard(module, "open", "out") for module in ("_dbm", "_gdbm")),
)  # fmt: skip
"""Of the standard library."""

PACKAGES: dict[str, tuple[Unheard, ...]] = {
    "torch": (
        Unheard("torch._C", "PyTorchFileReader.__init__", "second"),
        Unheard("torch._C", "import_ir_module", "second"),
        Unheard("torch._C", "_load_for_lite_interpreter"),
        Unheard("torch._C", "_load_jit_module_from_file"),
        Unheard("torch._C", "_load_mobile_module_from_file"),
        Unheard("torch", "UntypedStorage.from_file"),
        Unheard("torch", "from_file"),
    ),
    "onnx": (
        Unheard("onnx.onnx_cpp2py_export.checker", "check_model_path"),
        Unheard("onnx.onnx_cpp2py_export.shape_inference", "infer_shapes_path"),
    ),
    "onnxruntime": (
        Unheard("onnxruntime.capi.onnxruntime_pybind11_state", "InferenceSession.__init__", "session"),
        Unheard("onnxruntime.capi.onnxruntime_pybind11_state", "SessionOptions.register_custom_ops_library", "out"),
    ),
    "safetensors": (Unheard("safetensors._safetensors_rust", "safe_open.__init__", "second"),),
    "sentencepiece": (
        Unheard("sentencepiece", "SentencePieceProcessor.LoadFromFile", "second"),
        Unheard("sentencepiece", "SentencePieceProcessor.load_from_file", "second"),
        Unheard("sentencepiece", "SentencePieceTrainer._Train", "out"),
    ),
    "soundfile": (Unheard("soundfile", "SoundFile.__init__", "recording"),),
    "tokenizers": (
        Unheard("tokenizers", "Tokenizer.from_file"),
        Unheard("tokenizers", "Tokenizer.from_pretrained", "out"),
        *(Unheard("tokenizers.models", f"{model}.{name}", "out")
          for model in ("BPE", "WordPiece", "WordLevel") for name in ("from_file", "read_file")),
    ),
    **dict.fromkeys(
        ("google", "kaldi_native_fbank", "matplotlib", "numpy", "onnx_ir", "onnxscript", "psutil", "pydantic_core",
         "rapidfuzz", "scipy", "sympy", "yaml"), (),
    ),
}  # fmt: skip
"""Packages that are answered for, with their calls."""

_SUPPORTS = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
"""Where functions are looked up by what they are."""

MODULES = {call.module for calls in PACKAGES.values() for call in calls}
"""Modules that get listeners once they are imported."""


class Listeners:
    """The listeners that are installed.

    Args:
        hear: called with each call before it is made.

    Attributes:
        deaf: packages that lack a call which they were to have.
    """

    def __init__(self, hear: Hear) -> None:
        self.hear = hear
        self.deaf: set[str] = set()
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Install a listener in front of each tracked call of a loaded module."""
        for call in SYSTEM:
            self._listen(call)
        for module in MODULES:
            self.imported(module)

    def imported(self, module: str) -> None:
        """Install listeners for a module that may have been loaded."""
        if module in sys.modules:
            for package, calls in PACKAGES.items():
                for call in calls:
                    if call.module == module and not self._listen(call):
                        self.deaf.add(package)

    def end(self) -> None:
        """Remove all listeners."""
        while self._undo:
            self._undo.pop()()

    def _listen(self, call: Unheard) -> bool:
        *outer, name = call.name.split(".")
        owner: Any = sys.modules.get(call.module)
        for part in outer:
            owner = getattr(owner, part, None)
        before = getattr(owner, name, None)
        if before is None:
            return False
        defined = vars(owner).get(name)
        with_self = defined if defined is not None and not isinstance(defined, staticmethod) else before
        is_made_before = name == "__init__" and defined is None  # a native class that opens in `__new__`

        @functools.wraps(before)
        def listening(*arguments: Any, **options: Any) -> Any:
            self.hear(f"{call.means} {call.module}.{call.name}", (arguments, options))
            return None if is_made_before else with_self(*arguments, **options)

        stands_alone = bool(outer) and (isinstance(defined, staticmethod) or (defined is None and not is_made_before))
        setattr(owner, name, staticmethod(listening) if stands_alone else listening)
        for functions in _SUPPORTS if not outer else ():
            if before in functions:
                functions.add(listening)
        self._undo.append(functools.partial(_restore, owner, name, defined, listening))
        return True


def _restore(owner: Any, name: str, own: Any, listening: Callable[..., Any]) -> None:
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
    for functions in _SUPPORTS:
        functions.discard(listening)


def argument(given: Arguments, at: int) -> object:
    """Return an argument given by position, or the first given by name."""
    by_place, by_name = given
    return by_place[at] if at < len(by_place) else next(iter(by_name.values()), None)
