"""Asks a vendor's toolchain about every idiom, and writes table and page: `python -m tests.operators VENDOR`."""

import argparse
import tempfile
from pathlib import Path

from tests.operators.idioms import idioms
from tests.operators.sweep import sweep
from tests.operators.table import merged, page, page_of
from tests.operators.vendors import VENDORS


def main() -> None:
    """Sweep, and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.operators", description=__doc__)
    parser.add_argument("vendor", choices=VENDORS)
    parser.add_argument("--only", nargs="+", metavar="IDIOM", help="ask about these alone; the rest stays as it is")
    parser.add_argument("--page", action="store_true", help="ask nothing, and write the page of the table again")
    arguments = parser.parse_args()
    vendor, asked = VENDORS[arguments.vendor], idioms()
    if not arguments.page:
        if vendor.environment.fault():
            parser.error(f"{vendor.environment.fault()}; install it: {vendor.environment.install}")
        wanted = tuple(idiom for idiom in asked if not arguments.only or idiom.name in arguments.only)
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            for idiom, precision, verdict in sweep(vendor, wanted, Path(folder)):
                found[idiom.name, precision] = verdict
                print(f"{precision:10} {idiom.name:28} {verdict['verdict']} {verdict.get('sqnr_db', '')}", flush=True)
        vendor.table.write_text(merged(vendor, asked, found), encoding="utf-8")
    page_of(arguments.vendor).write_text(page(arguments.vendor), encoding="utf-8")


if __name__ == "__main__":
    main()
