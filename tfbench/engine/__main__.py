"""`python -m tfbench.engine`."""

import sys

from tfbench.engine.main import main

if __name__ == "__main__":
    sys.exit(main())
