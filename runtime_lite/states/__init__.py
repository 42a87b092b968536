"""Defines the kinds of states that a graph passes from call to call, with one record per kind and a table of all."""

from runtime_lite.states.appended import Appended
from runtime_lite.states.fixed import Fixed
from runtime_lite.states.kind import StateKind
from runtime_lite.states.ring import Ring
from runtime_lite.states.window import Window

FIXED, WINDOW, APPENDED, RING = Fixed(), Window(), Appended(), Ring()

KINDS: tuple[StateKind, ...] = (FIXED, WINDOW, APPENDED, RING)
"""Every kind of state; adding one takes a module and a line here."""

CACHES = {(kind.side, kind.update): kind for kind in KINDS if kind.side}
"""The kinds of caches, by their `side` and `update` in recipes and manifests."""

SIDES = tuple(dict.fromkeys(side for side, _ in CACHES))
UPDATES = tuple(dict.fromkeys(update for _, update in CACHES))
