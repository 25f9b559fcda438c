"""`python -m tinycb` is the command `tinycb`."""

import sys

from tinycb.cli import main

if __name__ == "__main__":
    sys.exit(main())
