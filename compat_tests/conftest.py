"""The brokers, the comparison and the table live in `compat_tests.plugin`; Spark's session is that of users' tests."""

pytest_plugins = ["compat_tests.plugin", "spark_integration.testing"]
