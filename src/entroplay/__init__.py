"""Optimisation over probability measures, with a bound on the distance to the global optimum.

The public names stand in `entroplay.public`. They are loaded together when the first of them is
used: `import entroplay` alone does not import JAX, and neither does the help of the command line.
"""

# ruff: noqa: F403 (type checkers read the names from where they are defined)

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .methods.samplers import *
    from .methods.solvers import *
    from .problems.features import *
    from .problems.losses import *
    from .public import *

    __version__: str
else:
    # Hidden from type checkers, which would otherwise accept any name.

    def __getattr__(name):
        """Load the public names, or look up the version."""
        if name == "__version__":
            from .base.version import installed_version

            globals()[name] = installed_version()
        elif name == "__all__" or not (name.startswith("_") or _is_submodule(name)):
            _load()
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        """The names of the module, public ones included."""
        _load()
        return sorted(globals())

    def _load():
        """Make all public names attributes of this module, once."""
        if "__all__" in globals():
            return
        public = vars(importlib.import_module(".public", __name__))
        names = {}
        for name, value in public.items():
            # Import hooks that check types put names of other packages into every module.
            home = getattr(value, "__module__", getattr(value, "__name__", ""))
            if not name.startswith("_") and home.startswith(f"{__name__}."):
                names[name] = value
        for package, base in public["_FAMILIES"]:
            for name, value in vars(package).items():
                if isinstance(value, type) and issubclass(value, base):
                    names[name] = value
        globals().update(names, __all__=sorted(names))

    def _is_submodule(name):
        """Whether `from entroplay import name` asks for a module that is not imported yet."""
        return importlib.util.find_spec(f"{__name__}.{name}") is not None
