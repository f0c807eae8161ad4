"""`python -m tfbench.engine`."""

import sys

from tfbench.core.precedence import take_precedence
from tfbench.engine.main import main

if __name__ == "__main__":
    take_precedence()
    sys.exit(main())
