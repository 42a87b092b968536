"""One row of the list of runtime tests: what it measures, and the bars that its figures have to keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Figures = Mapping[str, float]
"""By name; the unit is the last word of the name, counts have none."""

Measure = Callable[[int, bool], Figures]
"""Takes a size and whether to measure time, too; figures that the short form judges come without."""


@dataclass(frozen=True)
class Bar:
    """What a figure has to keep.

    Attributes:
        figure: its name.
        most: it is at most this.
        least: it is at least this.
        short: the short form judges it, too: it is the same on every machine, and at every size.
    """

    figure: str
    most: float | None = None
    least: float | None = None
    short: bool = True

    def fault(self, figures: Figures) -> str | None:
        """Why the figures do not keep it, or None."""
        found = figures[self.figure]
        if (self.most is None or found <= self.most) and (self.least is None or found >= self.least):
            return None
        return f"{self.figure}: expected {self}, got {found:g}"

    def __str__(self) -> str:
        """`<= 1` or `>= 0.95`."""
        limits = [f"<= {self.most:g}"] if self.most is not None else []
        return ", ".join(limits + ([f">= {self.least:g}"] if self.least is not None else []))


@dataclass(frozen=True)
class Row:
    """One scenario.

    Attributes:
        number: of the list.
        name: of the list.
        does: what is done, in a sentence.
        measure: does it.
        short: size of the form in `make test`.
        long: size of the form of `python -m tests.soak`.
        bars: of its figures.
        minutes: of the long form, about.
        quiet: whether the long form needs a machine that does nothing else.
    """

    number: int
    name: str
    does: str
    measure: Measure
    short: int
    long: int
    bars: tuple[Bar, ...]
    minutes: float = 1.0
    quiet: bool = False

    def faults(self, figures: Figures, short: bool) -> list[str]:
        """Bars that figures do not keep; those of the short form only, or all."""
        faults = (bar.fault(figures) for bar in self.bars if bar.short or not short)
        return [fault for fault in faults if fault is not None]


def none(*figures: str) -> tuple[Bar, ...]:
    """Bars of figures that are 0."""
    return tuple(Bar(figure, most=0) for figure in figures)
