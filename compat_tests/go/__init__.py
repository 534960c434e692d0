"""franz-go: the client that most new Go services take."""

from compat_tests.go.adapter import FranzGoClient

__all__ = ["FranzGoClient"]
