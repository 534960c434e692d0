# Aborted transactions of a segment: in memory while they are of use, in Kafka's bytes in the file.
from libc.errno cimport EINVAL, ENOENT, ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from kbroker._core.log.files cimport (
    CREATE, PATH_BYTES, TXN_INDEX_FILE, close_file, cut_file, open_file, path_of_file, read_whole, remove_path, write_at,
)
from kbroker._core.wire.cursor cimport load_be16, load_be64, store_be16, store_be64

cdef enum:
    FILE_MAX_BYTES = 1073741824
    FIRST_CAPACITY = 4


cdef void txn_index_reset(TxnIndex *x) noexcept nogil:
    free(x.entries)
    x.entries = NULL
    x.count = x.written = x.capacity = 0


cdef void txn_index_rest(TxnIndex *x) noexcept nogil:
    if x.count > 0 and x.written == x.count:
        txn_index_reset(x)
        x.count = NOT_READ


cdef bint txn_index_add(TxnIndex *x, const AbortedTxn *txn) noexcept nogil:
    cdef int32_t capacity
    cdef void *moved
    if x.count == x.capacity:
        capacity = 2 * x.capacity if x.capacity > 0 else FIRST_CAPACITY
        moved = realloc(x.entries, capacity * sizeof(AbortedTxn))
        if moved == NULL:
            return False
        x.entries = <AbortedTxn *> moved
        x.capacity = capacity
    x.entries[x.count] = txn[0]
    x.count += 1
    return True


cdef void decode(const uint8_t *at, AbortedTxn *out) noexcept nogil:
    out.producer_id = <int64_t> load_be64(at + 2)
    out.first_offset = <int64_t> load_be64(at + 10)
    out.last_offset = <int64_t> load_be64(at + 18)
    out.last_stable_offset = <int64_t> load_be64(at + 26)


cdef int adopt(TxnIndex *x, const uint8_t *data, int64_t length, int64_t base_offset, int64_t next_offset) noexcept nogil:
    cdef AbortedTxn txn
    cdef int64_t least = base_offset
    cdef int64_t at = 0
    if length % TXN_ENTRY_BYTES != 0:
        return -EINVAL
    while at < length:
        decode(data + at, &txn)
        if (<int16_t> load_be16(data + at) != 0 or txn.producer_id < 0 or not 0 <= txn.first_offset < txn.last_offset
                or not least <= txn.last_offset < next_offset or not 0 <= txn.last_stable_offset <= txn.last_offset + 1):
            return -EINVAL
        if not txn_index_add(x, &txn):
            return -ENOMEM
        least = txn.last_offset + 1
        at += TXN_ENTRY_BYTES
    x.written = x.count
    return 0


cdef int txn_index_read(TxnIndex *x, const char *directory, int64_t base_offset, int64_t next_offset) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef uint8_t *data
    cdef int64_t length = 0
    cdef int rc
    if x.count != NOT_READ:
        return 0
    txn_index_reset(x)
    if directory == NULL:
        return 0
    rc = path_of_file(path, directory, base_offset, TXN_INDEX_FILE, "")
    if rc != 0:
        return rc
    data = read_whole(path, FILE_MAX_BYTES, &length)
    if data == NULL:
        rc = 0 if length == -ENOENT else <int> length
    else:
        rc = adopt(x, data, length, base_offset, next_offset)
        free(data)
    if rc != 0:
        txn_index_reset(x)
        x.count = NOT_READ
    return rc


cdef void encode(const AbortedTxn *txn, uint8_t *out) noexcept nogil:
    store_be16(out, 0)
    store_be64(out + 2, <uint64_t> txn.producer_id)
    store_be64(out + 10, <uint64_t> txn.first_offset)
    store_be64(out + 18, <uint64_t> txn.last_offset)
    store_be64(out + 26, <uint64_t> txn.last_stable_offset)


cdef int write_entries(TxnIndex *x, const char *path) noexcept nogil:
    cdef int64_t length = <int64_t> (x.count - x.written) * TXN_ENTRY_BYTES
    cdef uint8_t *data = <uint8_t *> malloc(length + 1)
    cdef int32_t i
    cdef int fd, rc
    if data == NULL:
        return -ENOMEM
    for i in range(x.written, x.count):
        encode(&x.entries[i], data + <int64_t> (i - x.written) * TXN_ENTRY_BYTES)
    fd = open_file(path, CREATE)
    if fd < 0:
        free(data)
        return fd
    rc = write_at(fd, data, length, <int64_t> x.written * TXN_ENTRY_BYTES)
    if rc == 0:
        rc = cut_file(fd, <int64_t> x.count * TXN_ENTRY_BYTES)
    close_file(fd)
    free(data)
    if rc == 0:
        x.written = x.count
    return rc


cdef int txn_index_write(TxnIndex *x, const char *directory, int64_t base_offset, const char *ending) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int rc
    if directory == NULL or x.count == NOT_READ:
        return 0
    rc = path_of_file(path, directory, base_offset, TXN_INDEX_FILE, ending)
    if rc != 0:
        return rc
    return write_entries(x, path) if x.count > 0 else remove_path(path)


cdef void txn_index_cut(TxnIndex *x, int64_t offset) noexcept nogil:
    while x.count > 0 and x.entries[x.count - 1].last_offset >= offset:
        x.count -= 1
    x.written = min(x.written, max(x.count, 0))


cdef bint txn_index_collect(const TxnIndex *x, int64_t from_offset, int64_t upper_bound, TxnIndex *out, bint *no_memory) noexcept nogil:
    cdef const AbortedTxn *txn
    cdef int32_t low = 0
    cdef int32_t high = x.count
    cdef int32_t i
    no_memory[0] = False
    while low < high:                # those that ended before are skipped at once
        i = low + (high - low) // 2
        if x.entries[i].last_offset < from_offset:
            low = i + 1
        else:
            high = i
    if low > 0 and x.entries[low - 1].last_stable_offset >= upper_bound:
        return True
    for i in range(low, x.count):
        txn = &x.entries[i]
        if txn.first_offset < upper_bound and not txn_index_add(out, txn):
            no_memory[0] = True
            return True
        if txn.last_stable_offset >= upper_bound:
            return True              # whatever was aborted later began at or behind the bound
    return False
