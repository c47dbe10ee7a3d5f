"""Pages of the section Results: the README of every folder of `experiments/`.

The pages are written to `docs/results/` before Sphinx looks for documents, and only if they change. Other
pages link to the READMEs, so that their links work without a build too.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
EXPERIMENTS, PAGES = ROOT / "experiments", ROOT / "docs" / "results"

LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")
IMAGE = re.compile(r'<img src="([^"]+)" width="(\d+)" alt="([^"]+)">')
PAGE = re.compile(r"\[([^\]]+)\]\((\w+)/README\.md\)")
ROW = re.compile(r"^\| \[(.+?)\]\((\w+)/README\.md\) \|", re.MULTILINE)
README = re.compile(r"(?<=\]\()\.\./((?:\.\./)*)experiments/(?:(\w+)/)?(README|declared|conditions)\.md")


def write_pages(app: Sphinx) -> None:
    """Write one page for each experiment, and the overview."""
    PAGES.mkdir(exist_ok=True)
    overview = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    rows = ROW.findall(overview)
    pages = {name: page(name) for _, name in rows}
    intro, results = overview.partition("\n## ")[0], overview[overview.index("\n## ") :]
    intro = intro.replace("# Experiments", "# Results")
    figure = (ROOT / "docs" / "extension" / "results.md").read_text(encoding="utf-8")
    titles = {name: title for title, name in rows}
    for name, title in {"declared": "Declared comparisons", "conditions": "Conditions"}.items():
        text = (EXPERIMENTS / f"{name}.md").read_text(encoding="utf-8")
        text = PAGE.sub(lambda link: link[0] if link[2] in titles else link[1], text)  # some pages have left
        pages[name] = LINK.sub(lambda match: target(".", match[1]), text)
        titles[name] = title
    entries = "\n".join(f"{title} <{name}>" for name, title in titles.items())
    intro = LINK.sub(lambda match: target(".", match[1]), intro)
    results = results.replace("/README.md)", ".md)")
    index = f"{intro}\n{figure}{results}"
    pages["index"] = f"{index}\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    for name, text in pages.items():
        path = PAGES / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in PAGES.glob("*.md"):
        if path.stem not in pages:
            path.unlink()


def page(name: str) -> str:
    """Return the README of an experiment with links that are relative to `docs/results`."""
    text = (EXPERIMENTS / name / "README.md").read_text(encoding="utf-8")
    text = IMAGE.sub(r"```{image} \1\n:alt: \3\n:width: \2px\n```", text)
    text = re.sub(r"(?<=```\{image\} )(\S+)", lambda match: target(name, match[1]), text)
    return LINK.sub(lambda match: target(name, match[1]), text)


def target(name: str, link: str) -> str:
    """Return a link of the README of an experiment as one of a page in `docs/results`."""
    path = (EXPERIMENTS / name / link.partition("#")[0]).resolve()
    anchor = link[link.find("#") :] if "#" in link else ""
    if path.name == "README.md" and path.parent.parent == EXPERIMENTS:
        return f"{path.parent.name}.md{anchor}"
    if path.parent == EXPERIMENTS and path.suffix == ".md":
        return f"{path.stem}.md{anchor}"
    if path.is_relative_to(ROOT / "docs"):
        return f"../{path.relative_to(ROOT / 'docs')}{anchor}"
    return f"../../{path.relative_to(ROOT)}"


def link_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace links to READMEs of experiments by links to their pages."""
    source[0] = README.sub(
        lambda match: f"{match[1]}results/{match[2] or {'README': 'index'}.get(match[3], match[3])}.md",
        source[0],
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when the builder is ready."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_pages)
    return {"parallel_read_safe": True}
