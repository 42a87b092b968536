"""Classifies the audit events of Python's interpreter: which of them may read data that cannot be tracked.

The interpreter raises an audit event before each operation that may read data, whoever calls it
(https://docs.python.org/3/library/audit_events.html). Listed are the events whose reads can be checked again, and those
that read nothing. Every other event, also one that a later Python adds, may read data that cannot be tracked: the
result of its stage is not kept.
"""

OPENS = "open"
LISTS = "os.listdir"
SCANS = "os.scandir"
MAPS = "mmap.__new__"
SETS_VARIABLE = "os.putenv"
MAKES_FOLDER = "os.mkdir"
RENAMES = "os.rename"
READS_ATTRIBUTES = frozenset({"os.getxattr", "os.listxattr"})

TAKEN_IN = frozenset({LISTS, SCANS, MAPS, SETS_VARIABLE, MAKES_FOLDER, RENAMES, *READS_ATTRIBUTES})
"""Events that the tracer makes something of, each in its own way; as does it of files that are opened."""

HARMLESS = frozenset({
    "builtins.id", "code.__new__", "compile", "exec", "import", "os.chdir", "os.chflags", "os.chmod", "os.chown",
    "os.fwalk", "os.kill", "os.killpg", "os.link", "os.lockf", "os.remove", "os.removexattr", "os.rmdir", "os.setxattr",
    "os.symlink", "os.truncate", "os.unsetenv", "os.utime", "os.walk", "pickle.find_class", "setopencodehook",
    "ctypes.addressof", "ctypes.create_string_buffer", "ctypes.create_unicode_buffer", "ctypes.get_errno",
    "ctypes.set_errno", "ctypes.set_exception", "ctypes.PyObj_FromPtr",
})  # fmt: skip

HARMLESS_FAMILIES = frozenset({
    "array", "cpython", "ensurepip", "fcntl", "function", "gc", "glob", "marshal", "object", "pathlib", "pdb",
    "resource", "shutil", "signal", "sys", "syslog", "tempfile", "time", "_thread",
})  # fmt: skip
"""First words of events that read no file, or are followed by the events of those that they read."""

WORDS = {
    "subprocess": "another process",
    "os": "another process",
    "_posixsubprocess": "another process",
    "pty": "another process",
    "socket": "the network",
    "urllib": "the network",
    "http": "the network",
    "sqlite3": "a database",
    "dbm": "a database",
    "ctypes": "a library that ctypes opens",
}


def leads_out(event: str) -> bool:
    """Whether an audit event may read data that cannot be tracked."""
    return not (
        event == OPENS or event in TAKEN_IN or event in HARMLESS or event.partition(".")[0] in HARMLESS_FAMILIES
    )


def words_of(event: str) -> str:
    """Return the meaning of an audit event, for messages: `another process (subprocess.Popen)`."""
    what = WORDS.get(event.partition(".")[0])
    return event if what is None else f"{what} ({event})"
