"""The files of a new project; ``{name}`` and ``{module}`` are replaced in file names and contents."""

from __future__ import annotations

FUNCTION = '''"""{name}: a function on a stream of messages."""


def process(text, context):
    """Greet each message with the greeting from the config, and count messages.

    The return value is published to the output topic; None publishes nothing.
    """
    context.incr_counter("messages", 1)
    return f"{context.get_user_config_value('greeting')}, {text}!"
'''

TEST = '''"""Tests of {module}, on a broker in memory: `pytest`."""

import {module}


def test_it_greets(magnetar_function):
    f = magnetar_function({module}.process, user_config={"greeting": "Hello"})
    f.send("world")
    assert f.output() == "Hello, world!"
    assert f.state["messages"] == 1
'''

CONFTEST = '''"""Provides the fixture `magnetar_function` to tests, also when pytest runs several projects."""

from magnetar.testing.pytest_plugin import magnetar_function

__all__ = ["magnetar_function"]
'''

PYTEST_INI = """\
# Used when pytest runs in this directory: adds the option --magnetar-service-url, to test on a real broker.
[pytest]
addopts = -p magnetar.testing.pytest_plugin
pythonpath = .
"""

CONFIG = """\
# The config for `magnetar functions create` and `localrun`; flags override its fields.
name: "{name}"
className: {module}.process
py: {module}.py
inputs: [{name}-in]
output: {name}-out
processingGuarantees: ATLEAST_ONCE
userConfig:
  greeting: Hello
"""

README = """\
# {name}

A function for Magnetar: `{module}.py` is the function, `test_{module}.py` its test, `function.yaml` its config.

Test it with pytest (`pip install pytest`), on a broker in memory:

```sh
python -m pytest
```

Run it on a local broker. Enter the commands after the first one once its log contains
`ready: brokerServiceUrl`.

```sh
magnetar standalone &
magnetar functions create --function-config-file function.yaml
magnetar produce {name}-in -m world
magnetar consume {name}-out -s readme -p Earliest
```

`consume` prints the greeting:

```output
content:Hello, world!
```

While you work on the function, delete it there and run it in the terminal with `localrun`. It restarts every time
you save the file, and stops at a `breakpoint()`:

```sh
magnetar functions delete --name {name}
magnetar functions localrun --function-config-file function.yaml --reload    # until Ctrl-C
```
"""

FILES = {
    "{module}.py": FUNCTION,
    "test_{module}.py": TEST,
    "conftest.py": CONFTEST,
    "pytest.ini": PYTEST_INI,
    "function.yaml": CONFIG,
    "README.md": README,
}
"""File contents by file name."""
