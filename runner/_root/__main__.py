"""``python -m manyscale``: the command line."""

import sys

from manyscale.runner.entry import process

sys.exit(process())
