"""The brokers are those of the compatibility tests; the session is the one that users' tests have."""

pytest_plugins = ["compat_tests.plugin", "spark_integration.testing"]
