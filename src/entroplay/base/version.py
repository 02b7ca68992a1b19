"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version that the package was installed as."""
    try:
        return version("entroplay")
    except PackageNotFoundError:  # the source tree, not installed
        return "0.0.0"
