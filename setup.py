"""Builds the _core extensions. Everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Every compiled module, in import order: c <- wire <- record <- log <- partitions <- api <- net.
# A module's C companions, if any, stand behind it.
MODULES: dict[str, tuple[str, ...]] = {
    "errors": (),
    "clock": (),
    "allocator": (),
    "wire.chain": (),
    "wire.codec": (),
    "wire.express": (),
    "wire.express_end": (),
    "record.crc32c": ("c/crc32c.c",),
    "record.snappy": (),
    "record.lz4_frame": (),
    "record.compression": (),
    "record.batch": (),
    "record.records": (),
    "record.latest": (),
    "log.files": (),
    "log.health": (),
    "log.sparse_index": (),
    "log.txn_index": (),
    "log.segment": (),
    "log.open_files": (),
    "log.leader_epochs": (),
    "log.id_map": (),
    "log.verification": (),
    "log.producer_state": (),
    "log.flush": (),
    "log.fresh": (),
    "log.append": (),
    "log.lookup": (),
    "log.leftovers": (),
    "log.listing": (),
    "log.replay": (),
    "log.recovery": (),
    "log.upkeep": (),
    "log.retention": (),
    "log.verify": (),
    "log.log_config": (),
    "log.partition_log": (),
    "log.offset_map": (),
    "log.transactions": (),
    "log.aborted": (),
    "log.batch_filter": (),
    "log.swap": (),
    "log.cleaner": (),
    "log.examine": (),
    "log.handover": (),
    "partitions": (),
    "moves": (),
    "views": (),
    "syncer": (),
    "fetch_session": (),
    "purgatory": (),
    "api.list_offsets": (),
    "api.dispatch": (),
    "api.fetch_request": (),
    "api.produce_request": (),
    "api.produce": (),
    "api.fetch": (),
    "api.direct": (),
    "net.poller": (),
    "net.listener": (),
    "net.connection": (),
    "net.warmer": (),
    "net.egress": (),
    "net.mailbox": (),
    "net.service": (),
    "net.pressure": (),
    "net.relief": (),
    "net.loop": (),
    "core": (),
    "probe": (),
}

# Modules that no request passes through. They are compiled with -O1, in half the time of -O2.
COLD = {"errors", "allocator", "log.leftovers", "log.listing", "log.log_config", "probe"}

# Set while `make` installs the dependencies: `setup.py build_ext` then compiles the core once, in a step of its own.
SKIP_CORE = bool(os.environ.get("KBROKER_SKIP_CORE"))

CORE = Path("kbroker/_core")
RECIPE = Path("build/recipe.txt")  # the flags and directives of the last build
CORES = os.cpu_count() or 1
COMPILE = ["-O2", "-g0", "-std=gnu11", "-fno-strict-aliasing", "-Wall", "-Wno-unused-function", "-Wno-unreachable-code"]
SANITIZE = ["-fsanitize=address,undefined"] if os.environ.get("KBROKER_SANITIZE") else []
if SANITIZE:
    COMPILE += ["-O1", "-g", *SANITIZE, "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
if os.environ.get("KBROKER_PORTABLE"):  # on Linux, the system calls that macOS gets: see kbroker/_core/c/platform.h
    COMPILE += ["-DKBROKER_PORTABLE=1"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "binding": False,  # else each module carries, and compiles, Cython's own function type
}


def source_of(module: str) -> Path:
    return CORE / (module.replace(".", "/") + ".pyx")


def remove_outdated_c() -> None:
    """Remove the C that was generated before the flags or directives changed, so that its modules are built again.

    setuptools and Cython compare the times of files only: they keep a module that is newer than its sources.
    """
    recipe = f"flags {COMPILE}\nlink {SANITIZE}\n-O1 {sorted(COLD)}\ndirectives {DIRECTIVES}\n"
    if not RECIPE.exists() or RECIPE.read_text() != recipe:
        RECIPE.parent.mkdir(exist_ok=True)
        RECIPE.write_text(recipe)
    changed_at = RECIPE.stat().st_mtime_ns
    for module in MODULES:
        generated = source_of(module).with_suffix(".c")
        if generated.exists() and generated.stat().st_mtime_ns < changed_at:
            generated.unlink()


def extension(module: str, companions: tuple[str, ...]) -> Extension:
    return Extension(
        f"kbroker._core.{module}",
        [str(source_of(module)), *(str(CORE / name) for name in companions)],
        include_dirs=["."],
        extra_compile_args=[*COMPILE, "-O1"] if module in COLD else COMPILE,
        extra_link_args=SANITIZE,
        libraries=["dl", "pthread"],
    )


class ReportingBuild(build_ext):
    """Compiles the extensions and prints a line of progress after every tenth one."""

    compiled = 0

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        before = path.stat().st_mtime_ns if path.exists() else None
        super().build_extension(ext)
        if path.exists() and path.stat().st_mtime_ns == before:
            return
        self.compiled += 1
        if self.compiled % 10 == 0 or self.compiled == len(self.extensions):
            print(f"      {self.compiled} of {len(self.extensions)} modules compiled", flush=True)


if not SKIP_CORE:
    remove_outdated_c()
    missing = [module for module in MODULES if not source_of(module).with_suffix(".c").exists()]
    if missing:
        print(f"      generating C for {len(missing)} of {len(MODULES)} modules", flush=True)
setup(
    cmdclass={"build_ext": ReportingBuild},
    ext_modules=cythonize(
        [] if SKIP_CORE else [extension(module, companions) for module, companions in MODULES.items()],
        nthreads=CORES,
        quiet=True,
        annotate=bool(os.environ.get("KBROKER_ANNOTATE")),
        compiler_directives=DIRECTIVES,
    ),
    options={"build_ext": {"parallel": CORES}},
)
