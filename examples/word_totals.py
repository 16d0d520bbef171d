"""Counts words over all messages in the function's state, as in Pulsar's documentation.

magnetar functions create --py examples/word_totals.py --classname word_totals.WordCount --inputs sentences
magnetar produce sentences -m 'to be or not to be'
magnetar functions querystate --name WordCount --key be
"""

from pulsar import Function


class WordCount(Function):
    def process(self, item, context):
        for word in item.split():
            context.incr_counter(word, 1)
