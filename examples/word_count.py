"""A plain function: receives the text of a message and returns the count of each word as JSON.

magnetar functions create --py examples/word_count.py --classname word_count.count_words \
    --inputs sentences --output counts
"""

import json
from collections import Counter


def count_words(text):
    return json.dumps(Counter(str(text).lower().split()), sort_keys=True)
