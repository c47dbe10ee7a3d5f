"""Reading of YAML files as plain values. Imports no torch."""

from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Creates plain values only; in C where PyYAML was built with it, which takes a tenth of the time."""


def read_yaml(path: Path) -> Any:
    """Return the content of a file; {} if it is empty."""
    return yaml.load(path.read_bytes(), LOADER) or {}
