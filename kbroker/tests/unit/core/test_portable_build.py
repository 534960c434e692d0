"""The portable build (KBROKER_PORTABLE=1) calls nothing that only Linux has."""

import re
from pathlib import Path

import pytest

import kbroker._core
from kbroker._core.core import IS_PORTABLE_BUILD

# What the native build links and macOS lacks; `syscall` is memfd_create, fallocate and cachestat.
LINUX_SYMBOLS = ["accept4", "epoll_create1", "epoll_wait", "eventfd", "pipe2", "posix_fadvise", "sendfile", "syscall"]


@pytest.mark.parametrize("symbol", LINUX_SYMBOLS)
def test_only_the_linux_build_links_linux_system_calls(symbol: str) -> None:
    name = re.compile(rb"\0%b(64)?\0" % symbol.encode())  # an entry of the table of dynamic symbols
    modules = sorted(Path(kbroker._core.__path__[0]).rglob("*.so"))
    users = [module.stem for module in modules if name.search(module.read_bytes())]
    assert modules
    assert bool(users) is not IS_PORTABLE_BUILD, users
