"""``python -m magnetar``: the same as the console script ``magnetar``."""

import sys

from .cli.main import main

sys.exit(main())
