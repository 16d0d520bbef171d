"""A function as a class, written for Apache Pulsar: it runs here unchanged, whether pulsar-client is installed or not.

magnetar functions create --py examples/exclamation.py --classname exclamation.ExclamationFunction \
    --inputs greetings --output shouts --user-config '{"sign": "!"}'
"""

from pulsar import Function


class ExclamationFunction(Function):
    def process(self, input, context):  # noqa: A002
        sign = context.get_user_config_value("sign") or "!"
        context.get_logger().info("shouting %r", input)
        return f"{input}{sign}"
