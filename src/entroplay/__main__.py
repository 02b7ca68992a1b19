"""`python -m entroplay`."""

from .cli import run

run()
