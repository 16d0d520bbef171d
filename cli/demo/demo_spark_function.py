"""The Spark function of ``magnetar demo``, as a user would write it: counts the words of all messages."""

from __future__ import annotations

from typing import Any


def process(df: Any, context: Any) -> Any:
    """Return one message per word, with the word as key and its count as value."""
    words = df.selectExpr("explode(split(cast(value AS string), ' ')) AS word")
    context.get_logger().info("counting the words in %s", ", ".join(context.get_input_topics()))
    return words.groupBy("word").count().selectExpr("cast(word AS binary) AS __key", "cast(count AS string) AS value")
