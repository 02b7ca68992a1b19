"""Sphinx settings: Markdown pages, and a reference page made from the docstrings."""

import contextlib
import re
from importlib import metadata

project = "entroplay"
author = "The entroplay developers"
copyright = author
try:
    release = metadata.version("entroplay")
except metadata.PackageNotFoundError:  # the source tree, not installed
    release = "0.0.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "tables"]
html_theme = "furo"
html_title = f"entroplay {release}"

default_role = "code"
maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False


def keep_annotations_as_written(app, obj, bound_method):
    """Show annotations such as `Float[Array, "m d"]` as they stand in the source."""
    with contextlib.suppress(AttributeError, TypeError):
        # typing.get_type_hints evaluates nothing on objects with this mark.
        obj.__no_type_check__ = True


def formulas_are_not_markup(app, what, name, obj, options, lines):
    """Turn plain-text docstrings into reStructuredText.

    Text indented below a colon becomes verbatim. `|`, `*` and `mu_` are mathematics: escape them.
    """
    if what in ("attribute", "data", "property"):
        # An empty comment. Without it Napoleon takes "The shape: (n,)" for a type and its
        # description.
        lines[:0] = ["..", ""]
    verbatim_below = None  # indentation of the line with the colon, while inside the block below it
    in_example = False
    for number, line in enumerate(lines):
        if not line.strip():
            in_example = False
            continue
        indent = len(line) - len(line.lstrip())
        if verbatim_below is not None and indent > verbatim_below:
            continue
        verbatim_below = None
        in_example = in_example or line.lstrip().startswith(">>>")
        if in_example:
            continue
        bullet, text = re.match(r"(\s*(?:\* )?)(.*)", line).groups()
        parts = re.split(r"(`+[^`]*`+)", text)  # entries with an odd index are code
        parts[::2] = [re.sub(r"([|*]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
        # `Solution`s: markup must end before a letter, and an escaped space is not shown.
        parts[2::2] = [re.sub(r"^(?=\w)", r"\\ ", part) for part in parts[2::2]]
        lines[number] = bullet + "".join(parts)
        below = lines[number + 1 : number + 3]
        if (
            line.endswith(":")
            and len(below) == 2
            and not below[0].strip()
            and below[1].startswith(" " * (indent + 1))
        ):
            lines[number] += ":"
            verbatim_below = indent


def setup(app):
    app.connect("autodoc-before-process-signature", keep_annotations_as_written)
    # Napoleon's own handler has the priority 500: escape first, then let it read the sections.
    app.connect("autodoc-process-docstring", formulas_are_not_markup, priority=400)
