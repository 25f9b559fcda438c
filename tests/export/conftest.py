"""The command line, as the tests of the other commands call it."""

from tests.cli.conftest import cli

__all__ = ["cli"]
