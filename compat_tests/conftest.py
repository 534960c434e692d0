"""The brokers, the comparison and the table live in `compat_tests.plugin`, which the Spark tests use as well."""

pytest_plugins = ["compat_tests.plugin"]
