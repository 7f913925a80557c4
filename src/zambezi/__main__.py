"""`python -m zambezi` is the `zambezi` command."""

from __future__ import annotations

import sys

from zambezi.cli import main

if __name__ == "__main__":
    sys.exit(main())
