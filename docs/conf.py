"""Sphinx configuration: `make docs` builds the pages into `docs/build/html` without network access."""

import os
import sys
from pathlib import Path

from attnlab import __version__

sys.path.insert(0, str(Path(__file__).parent / "extension"))
os.environ["COLUMNS"] = "100"  # width of the help texts
# Kernels warn at each start that their connection, which only this machine can reach, is not encrypted
os.environ["IPYTHONDIR"] = str(Path(__file__).parent / "build" / "ipython")
kernels = Path(os.environ["IPYTHONDIR"]) / "profile_default" / "ipython_kernel_config.py"
kernels.parent.mkdir(parents=True, exist_ok=True)
kernels.write_text('get_config().IPKernelApp.log_level = "ERROR"\n', encoding="utf-8")

os.environ["PYTHONPATH"] = str(Path(__file__).parent / "lessons")  # of the kernels, for lesson.py

project = "attnlab"
author = "The attnlab developers"
project_copyright = author
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_reference",
    "configuration_reference",
    "docstrings",
    "experiment_pages",
    "mathml",
    "mechanism_reference",
    "metric_reference",
    "trainer_reference",
    "tutorial_outputs",
]
exclude_patterns = ["build", "extension", "gallery"]
nitpicky = False
suppress_warnings = ["myst.header"]  # READMEs of experiments start their tables at ###
default_role = "code"  # docstrings mark code by single backticks
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
# Notebooks are executed in empty folders, and again only if their code changes; an error stops the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "build" / "notebooks")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

apidoc_modules = [
    {
        "path": "../src/attnlab",
        "destination": "reference/api",
        "max_depth": 2,
        "exclude_patterns": ["/*/attnlab/conf"],  # a link to the options
        "separate_modules": False,
        "automodule_options": {"members", "show-inheritance"},
    }
]
autodoc_default_options = {"ignore-module-all": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False  # those of Lightning have markup of its own documentation
autodoc_typehints_format = "short"
autodoc_mock_imports = ["ray", "wandb_workspaces"]  # optional; warns on import
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_math_renderer = "mathml"
html_static_path = ["static"]
html_extra_path = ["lessons/train.html"]
html_css_files = ["attnlab.css"]
html_theme = "furo"
html_title = f"attnlab {version}"
html_theme_options = {"sidebar_hide_name": False}
html_show_sourcelink = False
