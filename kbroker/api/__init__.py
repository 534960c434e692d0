"""One module per API key: kNN_name.py. Importing this package imports them all; their decorators fill the registry."""

from importlib import import_module
from pkgutil import iter_modules

from kbroker.api.registry import REGISTRY, Registry, Row

for _module in iter_modules(__path__):
    if _module.name[0] == "k" and _module.name[1:3].isdigit():
        import_module(f"{__name__}.{_module.name}")

__all__ = ["REGISTRY", "Registry", "Row"]
