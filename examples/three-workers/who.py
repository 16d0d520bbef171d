"""Returns the number of the instance that processes the message. Deployed by run.py."""


def process(question, context):
    return f"{question} Instance {context.get_instance_id()}."
