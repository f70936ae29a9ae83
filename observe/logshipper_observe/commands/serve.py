"""`logshipper serve`: the page of a store, until Ctrl-C."""

import argparse

from logshipper_observe.page.command import serve


def call(args: argparse.Namespace) -> int:
    return serve(args, port=args.port)
