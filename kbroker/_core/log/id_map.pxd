# id_map: a number for each producer id, as many as there are.
# Owns        its slots.
# Called by   log/transactions, log/batch_filter, log/verification.
# Threads     one at a time.
# Fails by    False when memory ran out. Never takes the GIL.
from libc.stdint cimport int64_t

cdef struct IdSlot:
    int64_t id               # -1: the slot is empty
    int64_t value

cdef struct IdMap:
    IdSlot *slots            # NULL: nothing was ever put
    int64_t mask
    int64_t count

cdef void ids_clear(IdMap *m) noexcept nogil             # empty, and its memory given back
cdef IdSlot *ids_find(const IdMap *m, int64_t id) noexcept nogil              # NULL: unknown; no id is negative
cdef bint ids_put(IdMap *m, int64_t id, int64_t value) noexcept nogil         # pointers into the map end here
cdef void ids_remove(IdMap *m, IdSlot *slot) noexcept nogil                   # and here
