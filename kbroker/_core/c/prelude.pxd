# prelude: the declarations of c/atomics.h and c/kassert.h, and nothing else.
# The atomic macros are generic over integer width; each is declared here for the types we use.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "kbroker/_core/c/kassert.h" nogil:
    void KB_ASSERT(bint condition) noexcept

cdef extern from "kbroker/_core/c/atomics.h" nogil:
    int64_t load_int64 "kb_load"(const int64_t *p) noexcept
    void store_int64 "kb_store"(int64_t *p, int64_t v) noexcept
    int32_t load_int32 "kb_load"(const int32_t *p) noexcept
    void store_int32 "kb_store"(int32_t *p, int32_t v) noexcept
    void *load_pointer "kb_load"(void **p) noexcept
    void store_pointer "kb_store"(void **p, void *v) noexcept
    uint64_t load_counter "kb_load_relaxed"(const uint64_t *p) noexcept
    uint64_t add_counter "kb_add_relaxed"(uint64_t *p, uint64_t v) noexcept
    void retain_count "kb_retain"(int32_t *p) noexcept
    bint release_count "kb_release"(int32_t *p) noexcept
    void full_fence "kb_fence"() noexcept
    bint raise_flag "kb_raise_flag"(int32_t *p) noexcept
    void lower_flag "kb_lower_flag"(int32_t *p) noexcept
