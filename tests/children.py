"""Processes that tests start: bounded in time, reaped whatever happens, interruptible by SIGINT.

A parent that ignores SIGINT (a background job, `nohup`, some CI systems) hands that down, and
Python then installs no handler. Children that are to be interrupted restore it themselves.
"""

import subprocess
import sys
import threading
from contextlib import contextmanager

INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""First line of a script that is sent SIGINT."""
COMMAND = INTERRUPTIBLE + "from entroplay.commands import run; run()"
"""A script that runs `entroplay` with the arguments that follow."""


@contextmanager
def child(*arguments, seconds=120, **options):
    """A Python process with these arguments; killed after `seconds`, or when the test is over."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
