"""Functions as taught by Pulsar's documentation; they use nothing specific to Magnetar.

Each class covers one chapter: plain functions, the SDK, configuration, logs, metrics, SerDes, publishing, secrets,
state and errors.
"""

# ruff: noqa: A002, UP004, UP030, UP032  as people write them there
# mypy: ignore-errors

import json
import time

from pulsar import Function, SerDe


def process(input):
    return input + "!"


class Greeting(Function):
    def __init__(self):
        self.seen = 0

    def process(self, input, context):
        word = "hello"
        if "word" in context.get_user_config_map():
            word = context.get_user_config_value("word")
        self.seen += 1
        return "{} {} {}".format(word, input, self.seen)


class Describing(Function):
    def process(self, input, context):
        return json.dumps(
            {
                "name": context.get_function_name(),
                "tenant": context.get_function_tenant(),
                "namespace": context.get_function_namespace(),
                "instance": context.get_instance_id(),
                "topic": context.get_current_message_topic_name(),
                "properties": context.get_message_properties(),
                "key": context.get_partition_key(),
                "has_id": context.get_message_id() is not None,
                "inputs": list(context.get_input_topics()),
                "output": context.get_output_topic(),
            }
        )


class Logging(Function):
    def process(self, input, context):
        logger = context.get_logger()
        if "danger" in input:
            logger.warning("danger in message {0}".format(context.get_message_id()))
        else:
            logger.info("no danger")
        return input


class Measuring(Function):
    def process(self, input, context):
        context.record_metric("hits", 1)
        context.record_metric("length", len(input))
        return input


class Point(object):
    def __init__(self, x, y):
        self.x = x
        self.y = y


class PointSerDe(SerDe):
    def serialize(self, object):
        return "{}/{}".format(object.x, object.y).encode("utf-8")

    def deserialize(self, input_bytes):
        x, y = input_bytes.decode("utf-8").split("/")
        return Point(int(x), int(y))


class Mirroring(Function):
    def process(self, input, context):
        return Point(input.y, input.x)


class Routing(Function):
    def process(self, input, context):
        topic = context.get_user_config_value("large" if len(input) > 5 else "small")
        properties = dict(context.get_message_properties(), came_from=context.get_current_message_topic_name())
        conf = {
            "properties": properties,
            "partition_key": context.get_partition_key(),
            "event_timestamp": int(time.time()),
        }
        context.publish(topic, input, message_conf=conf)
        return


class Publishing(Function):
    def process(self, input, context):
        def published(result, message_id):
            context.get_logger().info("published: {}".format(result))

        point = Point(len(input), 0)
        context.publish(
            context.get_user_config_value("topic"), point, "written_for_pulsar.PointSerDe", callback=published
        )


class Secretive(Function):
    def process(self, input, context):
        return "{}:{}".format(context.get_secret("user"), context.get_secret("nobody's"))


class Counting(Function):
    def process(self, input, context):
        for word in input.split():
            context.incr_counter(word, 1)
        context.put_state("last", input)
        return str(context.get_counter("a"))


class Failing(Function):
    def process(self, input, context):
        raise Exception("cannot work")
