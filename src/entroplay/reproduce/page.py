"""One self-contained HTML page that puts claim and measurement side by side."""

from __future__ import annotations

import base64
import html
from pathlib import Path

from .claims import Claim, Part

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.6rem }
h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1.2rem }
img { max-width: 100%; height: auto; display: block; margin: 1rem auto 0.3rem }
figure { margin: 0 }
figcaption { color: #555; font-size: 0.9rem; text-align: center; margin-bottom: 1rem }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem }
.sides h3 { margin: 0 0 0.3rem; font-size: 1rem }
table { border-collapse: collapse; width: 100%; font-size: 0.86rem }
th, td { text-align: left; padding: 0.3rem 0.6rem; vertical-align: top }
th { border-bottom: 2px solid #999 } td { border-bottom: 1px solid #e4e4e4 }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.good { color: #14682b } .silent { color: #7a6a00 } .slip { color: #8a4b00 }
.bad { color: #fff; background: #b00020; font-weight: 600 }
.note { color: #666 } ul { padding-left: 1.2rem; font-size: 0.92rem }
@media (max-width: 45rem) { .sides { grid-template-columns: 1fr } }
"""
FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Entropic fictitious play, reproduced</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
HEADINGS = ("where", "claim", "setting", "measured", "bound", "verdict")


def write_page(parts: list[Part], folder: Path, heading: str) -> Path:
    """Write index.html; the pictures must already be in the folder."""
    good = sum(part.as_expected for part in parts)
    claims = [claim for part in parts for claim in part.claims]
    expected = sum(claim.as_expected for claim in claims)
    links = " · ".join(f'<a href="#{part.name}">{html.escape(part.title)}</a>' for part in parts)
    body = [
        "<h1>Entropic fictitious play, reproduced</h1>",
        "<p>Nitanda, Oko, Wu, Takenouchi and Suzuki, <cite>Primal and Dual Analysis of Entropic "
        "Fictitious Play for Finite-sum Problems</cite> (2023): what the paper claims, and what "
        "was measured here.</p>",
        f"<p>{html.escape(heading)}</p>",
        f"<p><strong>{expected} of {len(claims)} statements are as expected</strong>, {good} of "
        f"{len(parts)} parts without a surprise. A verdict compares the two numbers beside it. "
        "A statement taken for a misprint is expected to fail as printed; its corrected form "
        "stands below it.</p>",
        f"<p>{links}</p>",
        *(_section(part, folder) for part in parts),
    ]
    path = folder / "index.html"
    path.write_text(FRAME.format(style=STYLE, body="\n".join(body)), encoding="utf-8")
    return path


def _section(part: Part, folder: Path) -> str:
    """One part: the two sides, figures, the table of claims, choices and remarks."""
    lines = [
        f'<section id="{part.name}">',
        f"<h2>{html.escape(part.title)}</h2>",
        f'<div class="sides"><div><h3>The paper</h3><p>{html.escape(part.paper)}</p></div>',
        f"<div><h3>Measured</h3><p>{html.escape(part.found)}</p></div></div>",
    ]
    # Pictures are embedded: the page can be moved without its folder.
    for name in part.figures:
        picture = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
        caption = html.escape(part.captions.get(name, ""))
        lines.append(
            f'<figure><img alt="{html.escape(part.title)}" '
            f'src="data:image/png;base64,{picture}"><figcaption>{caption}</figcaption></figure>'
        )
    if part.claims:
        headings = "".join(f"<th>{name}</th>" for name in HEADINGS)
        lines += [
            f"<table><thead><tr>{headings}</tr></thead><tbody>",
            *(_row(claim) for claim in part.claims),
            "</tbody></table>",
        ]
    lines += _list("Chosen here, because the paper does not say", part.choices)
    lines += _list("Remarks", part.remarks)
    lines.append("</section>")
    return "\n".join(lines)


def _list(title: str, items: tuple[str, ...]) -> list[str]:
    """A titled list; nothing if it would be empty."""
    if not items:
        return []
    entries = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return [f"<h3>{title}</h3><ul>{entries}</ul>"]


def _row(claim: Claim) -> str:
    """One claim as a table row, coloured by its verdict."""
    if not claim.as_expected:
        kind = "bad"
    elif claim.misprint:
        kind = "slip"
    else:
        kind = "silent" if "nothing" in claim.verdict else "good"
    note = f'<br><span class="note">{html.escape(claim.note)}</span>' if claim.note else ""
    return (
        f"<tr><td>{html.escape(claim.where)}</td>"
        f"<td>{html.escape(claim.statement)}{note}</td>"
        f"<td>{html.escape(claim.setting)}</td>"
        f'<td class="number">{claim.measured:.3g}</td>'
        f'<td class="number">{claim.bound:.3g}</td>'
        f'<td class="{kind}">{html.escape(claim.verdict)}</td></tr>'
    )
