"""The report as one page that a browser shows wherever it goes: its pictures are inside it.

MLflow shows a Markdown artifact without its pictures, and mail or chat has no folder to find them
in. The words are those of `report.md` and of its appendix, whose sections are folded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.record.record import write_atomically

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 1rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1, h2, summary { border-bottom: 1px solid #ddd; padding-bottom: .2em; margin: 1em 0 .6em }
h1 { font-size: 1.5em }
h2, summary { font-size: 1.25em; font-weight: 600 }
summary { cursor: pointer }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .8em 0 }
th, td { border: 1px solid #ddd; padding: .15em .6em }
td[style*=right], td:first-child:not(:has(+ td[style*=left])) { white-space: nowrap }
pre { background: #f6f6f6; padding: .8em; overflow-x: auto; font-size: 13px }
img { max-width: min(100%, 62rem) }
@media (max-width: 60rem) {  /* the pane of a tracker */
  body { font-size: 12px; margin: .5rem auto }
  ul { padding-left: 1.5em }
  th, td { padding: .1em .35em }
  td:first-child { white-space: normal !important }
}
"""


def write_page(text: str, details: str, plans: Sequence[str], folder: Path) -> Path:
    """Write `report.html` beside the report, and return its path.

    Args:
        text: The report's Markdown. HTML in it is shown, not obeyed: a log may say anything.
        details: Its appendix; each section of the second level is folded under its heading.
        plans: Files in the folder that the text links to: folded too, where there is no folder.
        folder: The report's folder, where its pictures are.
    """
    from markdown_it import MarkdownIt  # most commands write no report

    markdown = MarkdownIt("js-default")
    folded = _folded(markdown, details)
    for name in plans:
        text = text.replace(f"[{name}]({name})", "folded below")
        folded += _folded(markdown, _section(folder / name))
    body = re.sub(
        r'<img src="([^":/]+\.png)"',
        lambda m: _embedded(m, folder),
        markdown.render(text) + folded,
    )
    title = re.search("<h1>(.*)</h1>", body)
    path = folder / "report.html"
    write_atomically(
        path,
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f"<title>{title[1] if title else 'report'}</title><style>{STYLE}</style>\n{body}</html>\n",
    )
    return path


def _section(plan: Path) -> str:
    """Return a plan as one section of the second level, without the picture that the text has."""
    return re.sub(r"^!\[.*\n", "", re.sub("^#", "##", plan.read_text(), flags=re.M), flags=re.M)


def _folded(markdown: MarkdownIt, text: str) -> str:
    """Render Markdown with each section of the second level folded under its heading."""
    tokens, opened, out = markdown.parse(text), "", ""
    for token in tokens:
        heading = token.type.startswith("heading_") and token.level == 0
        if heading and token.type == "heading_open" and token.tag in ("h1", "h2"):
            out += opened
            opened = "</details>\n" if token.tag == "h2" else ""
        if heading and token.tag == "h2":
            out += "<details><summary>" if token.type == "heading_open" else "</summary>\n"
        else:
            out += markdown.renderer.render([token], markdown.options, {})
    return out + opened


def _embedded(tag: re.Match[str], folder: Path) -> str:
    """Return the beginning of an image's tag with the picture inside it, if the folder has one."""
    picture = folder / tag[1]
    if not picture.is_file():
        return tag[0]  # named by a log or a reason, not by the report
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}"'
