"""The command line: one file per verb."""

from engram.cli.main import dispatch, main

__all__ = ["dispatch", "main"]
