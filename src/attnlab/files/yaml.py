"""Reading of YAML files as plain values. Imports no torch."""

from pathlib import Path
from typing import Any

import yaml

from attnlab.errors import UsageError

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Creates plain values only; in C where PyYAML was built with it, which takes a tenth of the time."""


def read_yaml(path: Path) -> Any:
    """Return the content of a file; {} if it is empty; raise `UsageError` if it is not valid YAML."""
    try:
        return yaml.load(path.read_bytes(), LOADER) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
