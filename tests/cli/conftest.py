"""The fixture that calls the command line."""

from tests.cli.kit import run

__all__ = ["run"]
