"""The long forms of the runtime tests: what they measure, the bars they have to keep, and the page that tells of them.

python -m tests.soak --row 10 --row 11     some rows; without --row all of them that need no quiet machine
python -m tests.soak --quiet               those that do: nothing else may run meanwhile
python -m tests.soak --minutes 30          serve for so long and watch the memory; then again, with a planted leak
python -m tests.soak --keep                besides, keep the figures in tests/soak/figures.json
python -m tests.soak --table               write docs/serving_tests.md from the figures that are kept
"""

import argparse
import os
import sys
import time

from tests.soak.figures import PAGE, keep, kept, page
from tests.soak.growth import ALLOCATOR, GROWTH_BARS, judge
from tests.soak.row import Figures
from tests.soak.rows import ROWS


def main() -> int:
    """Do what is asked for; 1 if a bar is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", type=int, action="append", choices=[row.number for row in ROWS])
    parser.add_argument("--quiet", action="store_true", help="the rows that need a quiet machine")
    parser.add_argument("--minutes", type=float, help="of the soak")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        PAGE.write_text(page(kept()), encoding="utf-8")
        return 0
    faults = []
    if options.minutes is not None:
        faults += soak(options.minutes, keeps=options.keep)
    else:
        numbers = options.row or [row.number for row in ROWS if row.quiet is options.quiet]
        for number in numbers:
            faults += run_row(number, keeps=options.keep)
    return 1 if faults else 0


def run_row(number: int, *, keeps: bool) -> list[str]:
    """Run the long form of a row; return the bars that it does not keep."""
    row = next(row for row in ROWS if row.number == number)
    begin = time.monotonic()
    figures = row.measure(row.long, True)
    faults = row.faults(figures, short=False)
    _tell(f"{row.number} {row.name}", figures, faults, time.monotonic() - begin)
    if keeps:
        keep(str(row.number), figures, row.long, time.monotonic() - begin)
    return faults


def soak(minutes: float, *, keeps: bool) -> list[str]:
    """Watch the memory for some time; return the bars that it does not keep. Begins anew with the allocator for it."""
    if not ALLOCATOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ALLOCATOR)
    begin = time.monotonic()
    figures = judge(minutes, print)
    faults = [fault for bar in GROWTH_BARS if (fault := bar.fault(figures)) is not None]
    _tell(f"soak of {minutes:g} minutes", figures, faults, time.monotonic() - begin)
    if keeps:
        keep("soak", figures, minutes, time.monotonic() - begin)
    return faults


def _tell(name: str, figures: Figures, faults: list[str], seconds: float) -> None:
    print(f"{name}: {seconds:.0f} s")
    for figure, value in figures.items():
        print(f"    {figure}: {value:.4g}")
    for fault in faults:
        print(f"    NOT KEPT: {fault}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
