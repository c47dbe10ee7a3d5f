"""Directives `{options} GROUP` and `{settings}`: reference of the configuration.

The description of an option is the comment at the top of its file in `conf/`. A row of its table has a
setting, its default value there, and the type and docstring entry of the argument that receives it. The
comment beside a setting describes it if no constructor takes it.
"""

import ast
import html
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack, get_args, get_origin, is_typeddict

import yaml
from docutils import nodes
from hydra.utils import get_object
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from attnlab.config.checks import allowed_settings, describe, show
from attnlab.config.sections import SECTIONS, section_at

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
FURTHER = ("", "init")
"""Sections with settings that `conf/train.yaml` does not name."""
HIDDEN = ("_partial_", "_target_", "defaults", "hydra")


def note_code(environment: BuildEnvironment) -> None:
    """Have Sphinx read the page again when a module of attnlab or of these directives changes."""
    for path in (*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.glob("*.py")):
        environment.note_dependency(str(path))


class Argument(NamedTuple):
    """A setting as the class or function that receives it declares it."""

    type: Any = Any
    default: Any = inspect.Parameter.empty
    meaning: str = ""  # its entry in the docstring


def arguments(name: str, target: str | None) -> dict[str, Argument]:
    """Return what the settings of a section are, if its `_target_` is this."""
    section = section_at(name)
    target = section.target if target is None else target
    meanings: dict[str, str] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for function in (target, *section.beside):
        if function is not None and "$" not in function:
            parameters |= inspect.signature(get_object(function)).parameters
            meanings |= documented(get_object(function))
    for parameter in parameters.values():
        if get_origin(parameter.annotation) is Unpack:
            meanings |= documented(*get_args(parameter.annotation))
    if section.declared is not None:
        meanings |= entries(inspect.cleandoc(section.declared.__doc__ or ""))
    defaults = {key: each.default for key, each in parameters.items()}
    named = target is not None and "$" in target  # a reference to another setting
    known = allowed_settings(name, {} if target is None else {"_target_": target}, imported=not named)
    return {
        key: Argument(kind, defaults.get(key, inspect.Parameter.empty), meanings.get(key, ""))
        for key, kind in known.types.items()
    }


def documented(target: Any) -> dict[str, str]:
    """Return the entries below `Args:` of a function, or of a class and its bases."""
    inherited = {key: text for base in reversed(bases(target)) for key, text in documented(base).items()}
    return inherited | entries(inspect.cleandoc(target.__doc__ or ""))


def bases(target: Any) -> Sequence[Any]:
    """Return the bases of a class. Those of a TypedDict are read in its source, since Python forgets them."""
    if not is_typeddict(target):
        return getattr(target, "__bases__", ())
    (definition,) = ast.parse(inspect.getsource(target)).body
    assert isinstance(definition, ast.ClassDef)
    names = vars(sys.modules[target.__module__])
    return [names[base.id] for base in definition.bases if isinstance(base, ast.Name)]


def entries(docstring: str) -> dict[str, str]:
    """Return the entries below `Args:` by name."""
    _, _, text = docstring.partition("\nArgs:\n")
    parsed: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith("    "):
            break
        if start := re.match(r" {4}([\w*][\w*, ]*): (.*)", line):
            names = start[1].split(", ")
            parsed.update(dict.fromkeys(names, start[2]))
        else:
            parsed.update({name: f"{parsed[name]} {line.strip()}".strip() for name in names})
    return parsed


class Setting(NamedTuple):
    """One key of an option's file."""

    key: str  # with dots
    default: str  # as written in the file
    comment: str


def header(lines: list[str]) -> str:
    """Return the comment at the top of a file as one text, without Hydra's package directive."""
    texts = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            texts.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(texts)


def settings(text: str) -> list[Setting]:
    """Return the keys of a YAML file with their default values and comments."""
    root = yaml.compose(text)
    return [] if root is None else list(_settings(root, text.splitlines(), ""))


def _settings(node: yaml.Node, lines: list[str], prefix: str) -> Iterator[Setting]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if (not prefix and key.value in HIDDEN) or key.value in ("_target_", "_partial_"):
            continue
        name = prefix + key.value
        block = (
            isinstance(value, yaml.MappingNode) and (not value.flow_style or name in SECTIONS) and value.value
        )
        if block:
            yield from _settings(value, lines, f"{name}.")
            continue
        start, end = value.start_mark, value.end_mark
        default = _between(lines, start, end)
        comment = lines[end.line][end.column :].partition("#")[2].strip() if end.line < len(lines) else ""
        following = end.line + 1
        while comment and following < len(lines) and _continues(lines[following], lines[end.line]):
            comment += " " + lines[following].strip().removeprefix("#").strip()
            following += 1
        yield Setting(name, default, comment)


def _between(lines: list[str], start: yaml.Mark, end: yaml.Mark) -> str:
    if start.line == end.line:
        return lines[start.line][start.column : end.column]
    inner = [line.strip() for line in lines[start.line + 1 : end.line]]
    return " ".join(
        [lines[start.line][start.column :].strip(), *inner, lines[end.line][: end.column].strip()]
    )


def _continues(line: str, above: str) -> bool:
    """Return whether a line only continues the comment beside the line above."""
    return line.strip().startswith("#") and line.find("#") == above.find("#")


def chosen(text: str) -> list[str]:
    """Return the entries of a file's defaults list, such as `override /tokenizer: symbols`."""
    entries = (yaml.safe_load(text) or {}).get("defaults", [])
    chosen = []
    for entry in entries:
        if isinstance(entry, dict):
            ((group, option),) = entry.items()
            if option is None and not group.startswith("override"):
                continue  # a group of which nothing is chosen by default
            group = group.removeprefix("override").strip().removeprefix("/")
            if not group.startswith("hydra"):
                name = "null" if option is None else str(option).replace("'", "")  # [wandb] is a list
                chosen.append(f"{group}={name}")
    return chosen


def target(text: str) -> str | None:
    """Return the class or function that a file names, if it names one."""
    content = yaml.safe_load(text) or {}
    return content.get("_target_")


def table(text: str, prefix: str, sections: Iterable[str] = ()) -> list[str]:
    """Return the settings of a file, and others that these and its sections accept, as a Markdown table."""
    content = yaml.safe_load(text) or {}
    signatures: dict[str, dict[str, Argument]] = {}

    def known(section: str) -> dict[str, Argument]:
        if section not in signatures:
            node = content
            for key in section.removeprefix(prefix.rstrip(".")).strip(".").split("."):
                node = node.get(key, {}) if key and isinstance(node, dict) else node
            named = node.get("_target_") if isinstance(node, dict) else None
            signatures[section] = arguments(section, named)
        return signatures[section]

    lines = ["| setting | default | values | description |", "| --- | --- | --- | --- |"]
    written = set()
    for row in settings(text):
        section, _, key = f"{prefix}{row.key}".rpartition(".")
        argument = known(section).get(key, Argument())
        written.add(f"{prefix}{row.key}")
        lines.append(_line(f"{prefix}{row.key}", row.default, argument, row.comment))
    for section in [*signatures] if prefix else [*SECTIONS]:
        if not prefix and section.split(".")[0] not in ("", *content, "init"):
            continue
        for key, argument in known(section).items():
            name = f"{section}.{key}".lstrip(".")
            if name not in written and name not in SECTIONS and argument.meaning and section != "trainer":
                default = (
                    argument.default if isinstance(argument.default, bool | int | float | str | None) else ""
                )
                lines.append(_line(name, "" if default == "" else show(default), argument, ""))
    return lines


def _line(name: str, default: str, argument: Argument, comment: str) -> str:
    values = "" if argument.type is Any else describe(argument.type).replace("_target_", "`_target_`")
    text = argument.meaning if argument.meaning and "``" not in argument.meaning else comment
    text = re.sub(r"\bNone\b", "null", text)
    cells = (f"`{name}`", f"`{default}`" if default else "", html.escape(values), html.escape(text))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Options(SphinxDirective):
    """All options of a group; with `:source:` their files in place of tables."""

    required_arguments = 1
    option_spec = {"source": lambda _: True}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return one section for each option."""
        note_code(self.env)
        group = self.arguments[0]
        folder = CONF / group
        lines: list[str] = []
        for path in sorted(folder.rglob("*.yaml")):
            self.env.note_dependency(str(path))
            text = path.read_text(encoding="utf-8")
            option = path.relative_to(folder).with_suffix("").as_posix()
            lines += [f"## `{group}={option}`", ""]
            if "source" in self.options:
                lines += ["```yaml", text.rstrip(), "```", ""]
                continue
            lines += [*description(header(text.splitlines())), ""]
            if named := target(text):
                lines += [
                    f"Class: `{named}`" if named[named.rfind(".") + 1].isupper() else f"Function: `{named}`",
                    "",
                ]
            if others := chosen(text):
                lines += ["Chooses: " + ", ".join(f"`{entry}`" for entry in others), ""]
            package = re.match(r"# @package (\S+)", text)
            prefix = f"{package[1]}." if package else f"{group.replace('/', '.')}."
            prefix = prefix.removeprefix("_global_.")
            if len(rows := table(text, prefix)) > 2:
                lines += [*rows, ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Settings(SphinxDirective):
    """The settings of `conf/train.yaml`, which belong to no group."""

    def run(self) -> list[nodes.Node]:
        """Return the default options and a table of the settings."""
        note_code(self.env)
        path = CONF / "train.yaml"
        self.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        lines = ["The default option of every group:", ""]
        lines += ["| group | option |", "| --- | --- |"]
        lines += [f"| `{entry.replace('=', '` | `', 1)}` |" for entry in chosen(text)]
        further = [name for name in SECTIONS if name.partition(".")[0] in FURTHER]
        lines += ["", "The settings:", "", *table(text, "", further)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def description(text: str) -> list[str]:
    """Return a header comment as Markdown: special characters are shown as they are."""
    if not text:
        return []
    return ["".join("\\" + sign if sign in "\\`*_{}[]<>#|~" else sign for sign in text)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("options", Options)
    app.add_directive("settings", Settings)
    return {"parallel_read_safe": True}
