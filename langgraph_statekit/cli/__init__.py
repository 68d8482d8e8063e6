"""The command `statekit`: looks after threads without the graph and without the user's classes."""

from langgraph_statekit.cli.program import main

__all__ = ["main"]
