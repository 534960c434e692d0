# allocator: how much freed memory malloc keeps for later.
# Owns        nothing: these are settings of the process.
# Called by   cli/start, once. An embedded broker leaves its host's allocator alone.
# Why         glibc raises its thresholds with the largest block that was ever freed, up to keeping 64 MiB at the end of each
#             thread's arena, which malloc_trim does not give back either. Set once, they stay where they are. Blocks up to
#             this size, all receive buffers that are kept among them, still come from the arena: a fresh mapping for each
#             costs a page fault per 4 KiB.
from kbroker._core.limits cimport MALLOC_KEEP_BYTES

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int kb_keep_at_most(int bytes) { return mallopt(M_MMAP_THRESHOLD, bytes) && mallopt(M_TRIM_THRESHOLD, bytes); }
    #else
    static int kb_keep_at_most(int bytes) { (void) bytes; return 0; }
    #endif
    """
    bint kb_keep_at_most(int bytes) noexcept


def keep_little():
    """Bounds what malloc keeps. False where it is not glibc's."""
    return kb_keep_at_most(MALLOC_KEEP_BYTES)
