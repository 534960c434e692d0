"""Click-stream events through Spark, exactly once: ingest, validate, de-duplicate, window, Parquet and Kafka.

`settings` names everything once; `schema`, `ingest`, `windows` and `fates` are DataFrames in and DataFrames out;
`store` and `sink` make a batch durable, in this order; `retry` and `dead_letters` move what failed; `run` puts them
together. `events` makes traffic with known totals, `audit` accounts for every record; `tests/proof` kills things
meanwhile.
"""

from spark_integration.pipeline.settings import Settings

__all__ = ["Settings"]
