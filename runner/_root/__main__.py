"""``python -m manyscale``: the command line."""

import sys

from manyscale.runner.cli import process

sys.exit(process())
