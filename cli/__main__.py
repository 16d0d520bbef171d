"""``python -m magnetar.cli``: equivalent to the console script ``magnetar``."""

import sys

from .main import main

sys.exit(main())
