"""A shared library for x86-64 Linux, written without a compiler: names that point at given machine code."""

import struct
from collections.abc import Mapping

RETURN_0 = b"\x31\xc0\xc3"

PT_LOAD, PT_DYNAMIC, R_W_X = 1, 2, 7
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 4, 5, 6, 10, 11, 14
EM_X86_64, ET_DYN, GLOBAL_FUNC, SOME_SECTION = 62, 3, 0x12, 1
CODE_AT = 64 + 2 * 56


def shared_library(soname: str, functions: Mapping[str, bytes]) -> bytes:
    """The content of the library.

    Args:
        soname: what the loader knows it by.
        functions: machine code by name, at least one.
    """
    code, places = b"", {}
    for name, body in functions.items():
        places[name] = CODE_AT + len(code)
        code += body + bytes(-len(body) % 16)
    names = ["", soname, *functions]
    offsets = [sum(len(name) + 1 for name in names[:at]) for at in range(len(names))]
    strings = b"".join(name.encode() + b"\0" for name in names)
    strings_at = CODE_AT + len(code)
    symbols_at = -(-(strings_at + len(strings)) // 8) * 8
    count = len(functions) + 1
    hash_at = symbols_at + 24 * count
    table = struct.pack(f"<4I{count - 1}I", 1, count, 1, 0, *range(2, count), 0)  # one bucket, one chain
    dynamic_at = -(-(hash_at + len(table)) // 8) * 8
    entries = [
        (DT_SONAME, offsets[1]), (DT_HASH, hash_at), (DT_STRTAB, strings_at), (DT_SYMTAB, symbols_at),
        (DT_STRSZ, len(strings)), (DT_SYMENT, 24), (DT_NULL, 0),
    ]  # fmt: skip
    dynamic = b"".join(struct.pack("<2Q", *entry) for entry in entries)
    size = dynamic_at + len(dynamic)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<2HI3QI6H", ET_DYN, EM_X86_64, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    header += struct.pack("<2I6Q", PT_LOAD, R_W_X, 0, 0, 0, size, size, 4096)
    header += struct.pack("<2I6Q", PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    symbols = bytes(24) + b"".join(
        struct.pack("<I2BH2Q", offset, GLOBAL_FUNC, 0, SOME_SECTION, places[name], len(functions[name]))
        for offset, name in zip(offsets[2:], functions, strict=True)
    )
    content = bytearray(size)
    for at, part in (
        (0, header), (CODE_AT, code), (strings_at, strings), (symbols_at, symbols), (hash_at, table),
        (dynamic_at, dynamic),
    ):  # fmt: skip
        content[at : at + len(part)] = part
    return bytes(content)
