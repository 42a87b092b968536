"""The front door of a checkout: `python build.py --recipe cpu.yaml`; where a wheel is installed, `slipway-build`."""

import sys

from compiler.front_door import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
