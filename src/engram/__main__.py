"""`python -m engram` is `engram`."""

from engram.cli import main

main()
