"""Topics in Spark, cell by cell: publish readings, count them, write the result to a topic, and show it.

    magnetar standalone &
    python examples/spark/notebook_style.py pulsar://localhost:6650

Requires pip install 'magnetar[spark]'. Each `# %%` starts a cell in notebooks that support the convention.
"""

# %% The broker's address, and unique topic names
import sys
import tempfile
import uuid
from pathlib import Path

SERVICE_URL = sys.argv[1] if len(sys.argv) > 1 else "pulsar://localhost:6650"
RUN = uuid.uuid4().hex[:8]
READINGS, AVERAGES = f"readings-{RUN}", f"averages-{RUN}"

# %% A session, on any installed Java
from magnetar.spark import SessionConfig, open_session  # noqa: E402

directory = tempfile.TemporaryDirectory(prefix="spark-")
log_file = Path(directory.name) / "jvm.log"
session = open_session(SessionConfig(directory=Path(directory.name), master="local[2]", log_file=log_file))
spark = session.spark

# %% Write a DataFrame to a topic: a key, and the value as JSON
readings = spark.range(10_000).selectExpr(
    "concat('sensor-', id % 4) AS __key",
    "to_json(named_struct('celsius', 15 + id % 10)) AS value",
)
readings.write.format("magnetar").mode("append").option("service.url", SERVICE_URL).option("topic", READINGS).save()

# %% Read the topic
topic = spark.read.format("magnetar").option("service.url", SERVICE_URL).load(READINGS)
topic.selectExpr("cast(__key AS string)", "cast(value AS string)", "__publishTime").show(3, truncate=False)
print("messages:", topic.count())

# %% Aggregate, and write the result to another topic
averages = (
    topic.selectExpr("__key", "get_json_object(cast(value AS string), '$.celsius') AS celsius")
    .groupBy("__key")
    .agg({"celsius": "avg"})
    .selectExpr("__key", "to_json(named_struct('average', round(`avg(celsius)`, 2))) AS value")
)
averages.write.format("magnetar").mode("append").option("service.url", SERVICE_URL).option("topic", AVERAGES).save()

# %% The messages that any consumer of that topic receives
result = spark.read.format("magnetar").option("service.url", SERVICE_URL).load(AVERAGES)
for row in (
    result.selectExpr("cast(__key AS string) AS sensor", "cast(value AS string) AS value").sort("sensor").collect()
):
    print(row["sensor"], row["value"])

# %% The end
session.stop()
directory.cleanup()
