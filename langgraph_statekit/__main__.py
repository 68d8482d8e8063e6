"""`python -m langgraph_statekit`, the same as `statekit`."""

from __future__ import annotations

import sys

from langgraph_statekit.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
