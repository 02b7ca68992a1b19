"""`python -m entroplay`."""

import sys

from .cli import main

sys.exit(main())
