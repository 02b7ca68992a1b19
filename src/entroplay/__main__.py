"""`python -m entroplay`."""

from .commands import run

run()
