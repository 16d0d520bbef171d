"""``python -m magnetar.cli``: the same as the console script ``magnetar``."""

import sys

from .main import main

sys.exit(main())
