"""`python -m entroplay`: the command line without the installed script."""

from .commands import run

run()
