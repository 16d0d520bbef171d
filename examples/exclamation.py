"""A class-based function written for Apache Pulsar. It runs unchanged, with or without pulsar-client installed.

magnetar functions create --py examples/exclamation.py --classname exclamation.ExclamationFunction \
    --inputs greetings --output shouts --user-config '{"sign": "!"}'
"""

from pulsar import Function


class ExclamationFunction(Function):
    def process(self, input, context):  # noqa: A002
        sign = context.get_user_config_value("sign") or "!"
        context.get_logger().info("shouting %r", input)
        return f"{input}{sign}"
