"""Topics as Spark data: the data source ``magnetar``, and how a session is started.

Nothing is imported here. What plans and reads (`options`, `ranges`, `survey`, `range_reader`) needs neither pyspark nor
pyarrow; `columns`, `source` and `writer` need both, `session` pyspark and a Java.
"""
