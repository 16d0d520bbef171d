"""Says which instance answers. Deployed by run.py."""


def process(question, context):
    return f"{question} Instance {context.get_instance_id()}."
