"""The report's page: one HTML file with its pictures inside, a table of contents, and what could not be drawn."""

import base64
import html
import re

STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #111; background: #fff; max-width: 1060px;
       margin: 2em auto; padding: 0 1.2em; }
h1 { font-size: 1.7em; margin-bottom: 0.2em; }
h2 { font-size: 1.3em; margin: 2em 0 0.4em; border-bottom: 1px solid #999; }
h3 { font-size: 1.08em; margin: 1.8em 0 0.3em; }
table { border-collapse: collapse; width: 100%; font-size: 0.87em; }
th, td { text-align: left; vertical-align: top; padding: 0.3em 0.9em 0.3em 0; border-bottom: 1px solid #ddd;
         overflow-wrap: anywhere; }
figure { margin: 1em 0 1.6em; break-inside: avoid; }
figure img { width: 100%; height: auto; }
figcaption { font-size: 0.87em; color: #333; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
code.option { white-space: nowrap; }
.command { font-size: 0.87em; color: #333; }
.warning { color: #8a2d00; font-weight: bold; }
nav ul { margin: 0.2em 0; }
th:nth-child(1) { width: 24%; }
th:nth-child(2) { width: 26%; }
@media print {
  body { max-width: none; margin: 0; font-size: 11px; }
  h3 { break-after: avoid; }
  a { color: inherit; }
}
"""


def escaped(text):
    return html.escape(str(text), quote=True)


def prose(text):
    """Escaped, with options set as code that no line end divides."""
    return re.sub(r"(?<!\S)(--[a-z-]*[a-z])", r'<code class="option">\1</code>', escaped(text))


def made_of(title, inputs_table, groups, not_drawn):
    """HTML of the whole page. `inputs_table` are rows of (path, what, facts, warnings); `groups` are
    (heading, [(plot, [(drawing, file, png)])]); `not_drawn` are plots without input."""
    parts = ["<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             f"<title>{escaped(title)}</title>\n"
             f"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style>\n"
             f"</head>\n<body>\n<h1>{escaped(title)}</h1>\n"]
    parts += [contents(groups, not_drawn), inputs_section(inputs_table)]
    for heading, plots in groups:
        parts.append(f"<h2>{escaped(heading)}</h2>\n")
        parts += [section(plot, drawings) for plot, drawings in plots]
    if not_drawn:
        parts.append(not_drawn_section(not_drawn))
    return "".join(parts) + "</body>\n</html>\n"


def contents(groups, not_drawn):
    rows = ['<nav aria-label="Contents">\n<h2>Contents</h2>\n<ul>\n<li><a href="#inputs">Files</a></li>\n']
    for heading, plots in groups:
        links = "".join(f'<li><a href="#{plot.name}">{escaped(plot.title)}</a></li>\n' for plot, _ in plots)
        rows.append(f"<li>{escaped(heading)}\n<ul>\n{links}</ul>\n</li>\n")
    if not_drawn:
        rows.append('<li><a href="#not-drawn">Not drawn</a></li>\n')
    return "".join(rows) + "</ul>\n</nav>\n"


def inputs_section(rows):
    body = "".join(
        f"<tr><td><code>{escaped(label)}</code></td><td>{prose(what)}</td><td>{escaped(facts)}"
        + "".join(f'<br><span class="warning">{escaped(warning)}</span>' for warning in warnings) + "</td></tr>\n"
        for label, what, facts, warnings in rows)
    return ('<h2 id="inputs">Files</h2>\n<table>\n<thead><tr><th>file</th><th>what it is</th>'
            f"<th>what it says of itself</th></tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n")


def section(plot, drawings):
    pictures = []
    for drawing, file, png in drawings:
        caption = " · ".join(filter(None, [escaped(drawing.note), f"<code>{escaped(file)}</code>"]))
        alternative = escaped(f"{plot.title}. {drawing.note}".strip())
        pictures.append(f'<figure>\n<img alt="{alternative}" src="data:image/png;base64,'
                        f'{base64.b64encode(png).decode()}">\n<figcaption>{caption}</figcaption>\n</figure>\n')
    return (f'<h3 id="{plot.name}">{escaped(plot.title)}</h3>\n<p>{prose(plot.reading)}</p>\n{"".join(pictures)}'
            f'<p class="command">Made from: {prose(plot.command)}</p>\n')


def not_drawn_section(plots):
    rows = "".join(f"<li>{escaped(plot.title)}: not drawn: needs {prose(plot.command)}</li>\n" for plot in plots)
    return f'<h2 id="not-drawn">Not drawn</h2>\n<ul>\n{rows}</ul>\n'
