"""Small pieces of HTML for notebooks: a titled table and a line of numbers, without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

WIDTH, HEIGHT, MARGIN = 160, 28, 2
"""Size of a sparkline and the space around its line, in pixels."""
MOST_POINTS = 200
"""Maximum number of points of a sparkline: longer series are thinned."""
CELL = "text-align:left;vertical-align:top;border:none;background:none;"
"""Style of a cell: notebooks align text to the right and colour every second row by default."""


def card(title: str, rows: Iterable[tuple[str, str]], picture: str = "") -> str:
    """A table with a title, one labelled text per row, and a picture in its last row.

    Everything but the picture is escaped. Colours are those of the page, light or dark.

    >>> card("Fit", [("loss", "0.1 < 0.5")]).count("0.1 &lt; 0.5")
    1
    """
    body = [_row(label, escape(text)) for label, text in rows]
    if picture:
        body.append(_row("", picture))
    return (
        '<div style="font-family:sans-serif;font-size:13px;line-height:1.4;max-width:60em;'
        'margin:4px 0;padding:6px 10px;border:1px solid rgba(128,128,128,0.4);border-radius:4px">'
        f'<div style="font-weight:600;padding:0 6px 2px 6px">{escape(title)}</div>'
        '<table style="border-collapse:collapse;border:none;margin:0;font-size:inherit;'
        'color:inherit">'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def sparkline(values: Iterable[float], label: str) -> str:
    """A series as a small line, with its label; empty if fewer than two values are finite.

    >>> sparkline([3.0, 2.0, 1.0], "loss").count("<polyline")
    1
    >>> sparkline([1.0], "loss")
    ''
    """
    series = np.asarray(list(values), np.float64)
    place = np.flatnonzero(np.isfinite(series))
    if len(place) < 2:
        return ""
    place = place[np.unique(np.linspace(0, len(place) - 1, MOST_POINTS).round().astype(int))]
    heights = series[place]
    low, high = heights.min(), heights.max()
    across = MARGIN + (WIDTH - 2 * MARGIN) * place / max(len(series) - 1, 1)
    # The vertical axis of SVG points downwards. A constant series is drawn in the middle.
    share = (high - heights) / (high - low) if high > low else np.full(len(heights), 0.5)
    down = MARGIN + (HEIGHT - 2 * MARGIN) * share
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(label)}" '
        'style="vertical-align:middle"><polyline fill="none" stroke="#4c78a8" '
        f'stroke-width="1.5" points="{points}"/></svg> '
        f'<span style="opacity:0.7">{escape(label)}</span>'
    )


def _row(label: str, content: str) -> str:
    """A row of the table; `content` is HTML."""
    return (
        f'<tr style="background:none"><td style="{CELL}padding:1px 12px 1px 6px;opacity:0.7;'
        f'white-space:nowrap">{escape(label)}</td>'
        f'<td style="{CELL}padding:1px 6px">{content}</td></tr>'
    )
