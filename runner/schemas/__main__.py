"""Prints a JSON schema: ``python -m manyscale.runner.schemas study`` (or target, or host)."""

from __future__ import annotations

import argparse
import json

from manyscale.runner.schemas import KINDS, schema_of


def main() -> None:
    """Reads the kind from the command line."""
    parser = argparse.ArgumentParser(prog="python -m manyscale.runner.schemas", description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS), help="the file that the schema is of")
    print(json.dumps(schema_of(parser.parse_args().kind), indent=1))


if __name__ == "__main__":
    main()
