"""`attnlab check`: check the parts of a configuration on a small batch.

The checks are those that parts from outside attnlab pass before each training: shapes, padding, a sentence
alone and beside longer ones, gradients.
"""

import argparse

from attnlab.files.terminal import print_line

IMPORTS = ("attnlab.jobs.preflight",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        metavar="OVERRIDE",
        nargs="*",
        help="settings, as for attnlab train: attention=dot attention._target_=cosine.Cosine "
        "+attention.temperature=0.1",
    )


def main(options: argparse.Namespace) -> int:
    from attnlab.config.by_pairs import each_size
    from attnlab.config.checks import check_settings
    from attnlab.config.compose import compose_run, usage_errors
    from attnlab.jobs.preflight import any_token, build_on_meta
    from attnlab.jobs.worker_process import import_from_current_folder
    from attnlab.training.own_parts import check_parts

    import_from_current_folder()
    with usage_errors():
        config = compose_run(options.overrides)
    check_settings(config)
    checked = (
        part
        for sized in each_size(config)
        for part in check_parts(sized, build_on_meta(sized), any_token(), shipped=True)
    )
    for part in dict.fromkeys(checked):
        print_line(f"{part}  keeps its contract")
    return 0
