"""Decides by a native library's imported functions whether it could read files without a Python audit event.

A library that calls no function which opens files, starts processes, loads libraries or goes to the network does none
of this, whatever is done with it. Code for which this cannot be decided counts as code that does.
"""

import functools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

OPENING = frozenset({
    "open", "open64", "openat", "openat64", "__open_2", "__open64_2", "__openat_2", "__openat64_2", "__open",
    "__open64", "creat", "creat64", "fopen", "fopen64", "freopen", "freopen64", "gzopen", "gzopen64", "opendir",
    "scandir", "scandir64", "ftw", "nftw", "stat", "stat64", "lstat", "lstat64", "fstatat", "fstatat64", "statx",
    "__xstat", "__xstat64", "__lxstat", "__lxstat64", "__fxstatat", "access", "faccessat", "readlink", "readlinkat",
    "fork", "vfork", "clone", "execl", "execlp", "execle", "execv", "execve", "execvp", "execvpe",
    "posix_spawn", "posix_spawnp", "system", "popen", "dlopen", "dlmopen", "socket", "connect", "shm_open",
    "io_uring_setup",
})  # fmt: skip
"""Functions of the C library, and of compression, that read files, or lead to what does."""

OPENING_IN_CPP = re.compile(
    r"basic_i?fstream.*(C[12]E(?!v$)|4open)|basic_filebuf.*4open|__basic_file.*4open|10filesystem"
)
"""Names of C++ functions that do: streams that are made of a name, or opened."""

SYSTEM_LIBRARIES = (
    "libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libutil.so", "libgcc_s.so", "libstdc++.so",
    "libgomp", "libgfortran", "libquadmath", "libopenblas", "libscipy_openblas", "libz.so", "libpython", "ld-linux",
    "linux-vdso", "libcrypt.so",
)  # fmt: skip
"""Beginnings of the names of libraries whose functions open what their caller names, and nothing else of a user's."""

SHT_DYNAMIC, SHT_DYNSYM, DT_NEEDED = 6, 11, 1
UNDEFINED = 0
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNAMIC = struct.Struct("<qQ")


def may_read(path: str) -> bool:
    """Whether a library, or one that it needs, calls functions that open files.

    Args:
        path: path of the library; True for one that cannot be read, or is no 64-bit ELF file.
    """
    seen, waiting = set[str](), [path]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        try:
            stamp = os.stat(here).st_mtime_ns
            calls, needed = _calls_and_needs(here, stamp)
        except (OSError, ValueError, struct.error, IndexError):
            return True
        if calls:
            return True
        for name in needed:
            if name.startswith(SYSTEM_LIBRARIES):
                continue
            beside = _beside(Path(here), name)
            if beside is None:
                return True
            waiting.append(beside)
    return False


def _beside(library: Path, name: str) -> str | None:
    """Return the path of a library that another one needs, beside it or in `<package>.libs`; None if not found."""
    folders = (library.parent, *(above.with_name(f"{above.name}.libs") for above in library.absolute().parents[:-1]))
    return next((str(folder / name) for folder in folders if (folder / name).is_file()), None)


@functools.lru_cache(maxsize=4096)
def _calls_and_needs(path: str, stamp: int) -> tuple[bool, tuple[str, ...]]:
    """Return whether a library calls functions that open files, and the libraries that it needs; cached by `stamp`."""
    content = memoryview(Path(path).read_bytes())
    if bytes(content[:6]) != b"\x7fELF\x02\x01":
        raise ValueError(f"{path}: expected 64-bit ELF with the low byte first")
    sections = list(_sections(content))
    calls, needed = False, list[str]()
    for kind, start, size, link in sections:
        if kind not in (SHT_DYNSYM, SHT_DYNAMIC):
            continue
        names = bytes(content[sections[link][1] : sections[link][1] + sections[link][2]])
        if kind == SHT_DYNSYM:
            for name, _, _, section, _, _ in SYMBOL.iter_unpack(content[start : start + size]):
                calls = calls or (section == UNDEFINED and _opens(_text(names, name)))
        else:
            entries = DYNAMIC.iter_unpack(content[start : start + size])
            needed += [_text(names, value) for tag, value in entries if tag == DT_NEEDED]
    return calls, tuple(needed)


def _sections(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, start, size and link of every section."""
    (first,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    if size != SECTION.size or not count:
        raise ValueError("expected a table of sections")
    for at in range(count):
        _, kind, _, _, start, length, link, _, _, _ = SECTION.unpack_from(content, first + at * size)
        yield kind, start, length, link


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode("utf-8", "replace")


def _opens(name: str) -> bool:
    return name in OPENING or OPENING_IN_CPP.search(name) is not None
