"""audit_events: an event that nobody knows leads out of sight."""

import pytest

from compiler.base.cache.audit_events import leads_out, words_of


@pytest.mark.parametrize(
    "event", ["open", "os.listdir", "mmap.__new__", "import", "object.__getattr__", "sys._getframe", "shutil.copyfile"]
)
def test_events_that_read_nothing_or_are_taken_in(event: str) -> None:
    assert not leads_out(event)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("subprocess.Popen", "another process (subprocess.Popen)"),
        ("os.posix_spawn", "another process (os.posix_spawn)"),
        ("socket.connect", "the network (socket.connect)"),
        ("sqlite3.connect", "a database (sqlite3.connect)"),
        ("ctypes.dlopen", "a library that ctypes opens (ctypes.dlopen)"),
        ("winreg.OpenKey", "winreg.OpenKey"),
    ],
)
def test_events_that_lead_out_of_sight(event: str, words: str) -> None:
    assert leads_out(event) and words_of(event) == words
