# The write path of a log: validate outside the lock; under it check the producer, stamp and index batch by batch, write all
# of them at once, and publish.
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from posix.uio cimport iovec

from kbroker._core.c.prelude cimport KB_ASSERT, store_int64
from kbroker._core.errors cimport (
    CORRUPT_MESSAGE, INVALID_RECORD, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NONE, OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
)
from kbroker._core.limits cimport APPENDS_AT_ONCE
from kbroker._core.log.files cimport cut_file, pthread_mutex_lock, pthread_mutex_unlock
from kbroker._core.log.fresh cimport fresh_make
from kbroker._core.log.leader_epochs cimport epochs_assign, epochs_latest, epochs_write
from kbroker._core.log.offset_index cimport OFFSET_ENTRY_BYTES
from kbroker._core.log.open_files cimport files_make_room, files_note, files_open_indexes, files_open_log, out_of_files
from kbroker._core.log.producer_state cimport (
    CHECK_EPOCH, CHECK_SEQUENCE, ProducerBatch, producers_check, producers_check_marker, producers_expire, producers_note,
    producers_write_snapshot,
)
from kbroker._core.log.segment cimport (
    Segment, segment_account, segment_add_txn, segment_create, segment_load_first_timestamp, segment_new, segment_release,
    segment_trim, segment_write, segment_write_indexes, segment_write_txns,
)
from kbroker._core.log.state cimport RECENT_BATCHES, RecentBatch, active, first_unstable, go_offline, refusal, usable
from kbroker._core.log.time_index cimport TIME_ENTRY_BYTES
from kbroker._core.log.txn_index cimport AbortedTxn
from kbroker._core.log.verification cimport (
    Verification, verification_find, verification_forget, verifications_expire,
)
from kbroker._core.record.batch cimport (
    ATTR_CONTROL, ATTR_TRANSACTIONAL, BATCH_HEADER_BYTES, FROM_CLIENT, FROM_LEADER, BatchRules, batch_attributes,
    batch_base_offset, batch_has_producer_id, batch_last_offset, batch_last_offset_delta, batch_leader_epoch,
    batch_max_timestamp, batch_producer_epoch, batch_producer_id, batch_size_bytes, check_batch, single_batch, stamp_batch, validate_batch,
)
from kbroker._core.record.compression cimport empty_scratch, scratch_free

cdef enum:
    EXPIRY_INTERVAL_MS = 600000      # Kafka's producer.id.expiration.check.interval.ms


# What one append is about to write.
cdef struct Incoming:
    uint8_t *data
    int32_t length
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t guard
    int16_t transaction_version
    Scratch rewritten                # `data` lies here when validation had to make the batch anew


# Batches that are numbered and accounted for, and not in the file yet. The lock is not let go before they are: should the
# write fail, the log is offline, and what its memory says of them is of no account.
cdef struct Staged:
    iovec runs[APPENDS_AT_ONCE]
    int32_t count
    int64_t bytes
    int64_t end_offset


cdef void forget_positions(Log *log) noexcept nogil:
    cdef int i
    log.recent_count = 0
    for i in range(8):
        log.hints[i].segment = NULL


cdef int64_t jitter_of(const Log *log, int64_t base_offset) noexcept nogil:
    # Spread by partition and segment, the same on every run: no randomness in the core.
    cdef uint64_t z = log.jitter_seed + <uint64_t> base_offset * 0x9e3779b97f4a7c15ULL
    if log.config.segment_jitter_ms <= 0:
        return 0
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL
    z ^= z >> 31
    return <int64_t> (z % <uint64_t> min(log.config.segment_jitter_ms, max(log.config.segment_ms, 1)))


cdef int push_segment(Log *log, int64_t base_offset, bint create, int64_t now_ms) noexcept nogil:
    cdef Segment *s
    cdef void *moved
    cdef int32_t capacity
    cdef int rc
    if log.segment_count == log.segment_capacity:
        capacity = log.segment_capacity * 2 if log.segment_capacity > 0 else 2
        moved = realloc(log.segments, capacity * sizeof(Segment *))
        if moved == NULL:
            return -ENOMEM
        log.segments = <Segment **> moved
        log.segment_capacity = capacity
    s = segment_new(log.directory, base_offset, &log.lock, log.health)
    if s == NULL:
        return -ENOMEM
    s.created_ms = now_ms
    s.roll_jitter_ms = jitter_of(log, base_offset)
    if create:
        rc = segment_create(s, log.config.segment_bytes if log.config.preallocate else 0)
        while files_make_room(log.files, s, rc):
            rc = segment_create(s, log.config.segment_bytes if log.config.preallocate else 0)
        if rc != 0:
            segment_release(s)
            return rc
        log.names_changed = True
        files_note(log.files, s)
    log.segments[log.segment_count] = s
    log.segment_count += 1
    return 0


cdef int seal_and_push(Log *log, Segment *s, int64_t base_offset, int64_t now_ms) noexcept nogil:
    # The old segment's indexes are written and let go; its last time entry is its largest timestamp, as Kafka leaves it.
    # Every step may be done again, so that a shortage of descriptors can be tried past.
    cdef int rc = files_open_indexes(log.files, s, log.config.index_interval_bytes)
    if rc == 0:
        rc = segment_write_indexes(s, True)
    if rc == 0:
        rc = segment_trim(s)
    if rc == 0:
        rc = producers_write_snapshot(&log.producers, log.directory, base_offset)
    if rc == 0 and log.directory != NULL:
        rc = epochs_write(&log.epochs, log.directory, INT64_MAX)
    if rc == 0:
        rc = push_segment(log, base_offset, True, now_ms)
    return rc


cdef int roll(Log *log, int64_t base_offset, int64_t now_ms) noexcept nogil:
    cdef Segment *s = active(log)
    cdef int rc
    KB_ASSERT(base_offset > s.base_offset)
    rc = seal_and_push(log, s, base_offset, now_ms)
    while files_make_room(log.files, s, rc):
        rc = seal_and_push(log, s, base_offset, now_ms)
    if out_of_files(rc):
        return rc                            # the next append tries again
    if rc != 0:
        return go_offline(log, rc)
    forget_positions(log)
    return 0


cdef int log_roll(Log *log, int64_t now_ms) noexcept nogil:
    cdef int rc
    pthread_mutex_lock(&log.lock)
    if not usable(log):
        rc = refusal(log)
    elif log.end_offset == active(log).base_offset:
        rc = 0
    else:
        rc = roll(log, log.end_offset, now_ms)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef int should_roll(Log *log, int64_t size_bytes, const Incoming *incoming, int64_t now_ms) noexcept nogil:
    # 1, 0 or -errno. Time is told by the records where they tell it, else by the segment's age.
    cdef Segment *s = active(log)
    cdef int64_t waited
    cdef int rc
    if incoming.base_offset == s.base_offset:
        return 0
    if incoming.last_offset - s.base_offset > 0x7fffffff:
        return 1
    if size_bytes == 0:
        return 0
    if size_bytes > <int64_t> log.config.segment_bytes - incoming.length:
        return 1
    if (s.offset_index.count >= log.config.segment_index_bytes // OFFSET_ENTRY_BYTES
            or s.time_index.count >= log.config.segment_index_bytes // TIME_ENTRY_BYTES - 1):
        return 1
    rc = files_open_log(log.files, s)        # counted: the timestamp would open it unseen
    if rc == 0:
        rc = segment_load_first_timestamp(s)
    if rc != 0:
        return rc
    waited = incoming.max_timestamp - s.first_timestamp if s.first_timestamp >= 0 else now_ms - s.created_ms
    return 1 if waited > log.config.segment_ms - s.roll_jitter_ms else 0


cdef void append_begin(AppendResult *out, int16_t error) noexcept nogil:
    out.error = error
    out.duplicate = False
    out.needs_fallback = False
    out.base_offset = -1
    out.last_offset = -1
    out.log_append_time_ms = -1
    out.log_start_offset = -1
    out.appended_bytes = 0
    out.verdict.error = NONE
    out.verdict.needs_fallback = False
    out.verdict.record_error_count = 0
    out.verdict.message = NULL
    out.verdict.record_message = NULL


cdef void refuse(AppendResult *out, int16_t error, int64_t start_offset) noexcept nogil:
    # Kafka tells the log's start unless the batch as a whole was unfit to be looked into.
    out.error = error
    if error not in (CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR):
        out.log_start_offset = start_offset


cdef void validate_several(Incoming *incoming, Origin origin, const BatchRules *rules, int64_t now_ms,
                           Scratch *scratch, AppendResult *out) noexcept nogil:
    # Our own batches and a leader's: one after the other, each whole. A leader's fetch may end in a part of one.
    cdef Scratch rewritten
    cdef int32_t rewritten_length = 0
    cdef int32_t at = 0
    cdef int32_t size
    rewritten = empty_scratch()
    while at < incoming.length:
        if origin == FROM_LEADER and incoming.length - at < BATCH_HEADER_BYTES and at > 0:
            break
        if incoming.length - at < BATCH_HEADER_BYTES:
            out.error = CORRUPT_MESSAGE
            break
        size = batch_size_bytes(incoming.data + at)
        if origin == FROM_LEADER and size > incoming.length - at and at > 0:
            break
        if size < BATCH_HEADER_BYTES or size > incoming.length - at:
            out.error = CORRUPT_MESSAGE
            break
        validate_batch(incoming.data + at, size, origin, rules, now_ms, NULL, -1, scratch, &rewritten,
                       &rewritten_length, &out.verdict)
        out.error = out.verdict.error
        out.needs_fallback = out.verdict.needs_fallback
        if out.error == NONE and rewritten_length > 0:
            out.error = INVALID_RECORD       # our own builder numbers records as they come
        if out.error != NONE or out.needs_fallback:
            break
        at += size
    incoming.length = at
    if out.error == NONE and at == 0:
        out.error = INVALID_RECORD
    scratch_free(&rewritten)


cdef bint number_batches(Log *log, int64_t next_offset, Incoming *incoming, Origin origin, int32_t leader_epoch,
                         AppendResult *out) noexcept nogil:
    # Offsets and epoch in place; a leader's batches have theirs and must follow what is here.
    cdef int32_t at = 0
    cdef uint8_t *batch
    incoming.max_timestamp = -1
    incoming.base_offset = batch_base_offset(incoming.data) if origin == FROM_LEADER else next_offset
    while at < incoming.length:
        batch = incoming.data + at
        if origin == FROM_LEADER:
            if batch_base_offset(batch) < next_offset or batch_last_offset_delta(batch) < 0:
                refuse(out, OFFSET_OUT_OF_RANGE, log.start_offset)
                return False
        else:
            stamp_batch(batch, next_offset, leader_epoch)
        next_offset = batch_last_offset(batch) + 1
        if batch_max_timestamp(batch) > incoming.max_timestamp:
            incoming.max_timestamp = batch_max_timestamp(batch)
        at += batch_size_bytes(batch)
    incoming.last_offset = next_offset - 1
    return True


cdef int16_t check_producer(Log *log, const Incoming *incoming, const uint8_t *batch, Origin origin,
                            ProducerBatch **duplicate) noexcept nogil:
    cdef Verification *pending
    cdef bint verified
    if batch_attributes(batch) & ATTR_CONTROL:
        return producers_check_marker(&log.producers, batch, batch_size_bytes(batch), incoming.transaction_version)
    pending = verification_find(&log.verifications, batch_producer_id(batch))
    verified = not log.config.verifies_transactions or (pending != NULL and pending.guard == incoming.guard)
    return producers_check(&log.producers, batch, CHECK_SEQUENCE if origin == FROM_CLIENT else CHECK_EPOCH, pending,
                           verified, duplicate)


cdef bint check_producers(Log *log, const Incoming *incoming, Origin origin, int64_t now_ms, AppendResult *out) noexcept nogil:
    cdef int32_t at = 0
    cdef const uint8_t *batch
    cdef ProducerBatch *duplicate = NULL
    cdef int16_t error
    if origin == FROM_LEADER:
        return True                          # what the leader took is not ours to judge
    if log.producers.count > 0 and now_ms - log.producers.swept_ms >= EXPIRY_INTERVAL_MS:
        producers_expire(&log.producers, now_ms, log.config.producer_id_expiration_ms)
        verifications_expire(&log.verifications, now_ms, log.config.producer_id_expiration_ms)
    while at < incoming.length:
        batch = incoming.data + at
        if batch_has_producer_id(batch):
            error = check_producer(log, incoming, batch, origin, &duplicate)
            if error != NONE:
                refuse(out, error, log.start_offset)
                return False
            if duplicate != NULL:
                out.duplicate = True
                out.base_offset = duplicate.last_offset - duplicate.offset_delta
                out.last_offset = duplicate.last_offset
                out.log_append_time_ms = duplicate.timestamp
                out.log_start_offset = log.start_offset
                return False
        at += batch_size_bytes(batch)
    return True


cdef int write_staged(Log *log, Staged *staged) noexcept nogil:
    cdef Segment *s = active(log)
    cdef int rc
    if staged.count == 0:
        return 0
    rc = segment_write(s, staged.runs, staged.count, staged.bytes)
    if rc != 0:
        cut_file(s.fd, s.size_bytes)
        return go_offline(log, rc)
    if s.txn_index.count > s.txn_index.written:
        rc = segment_write_txns(s)
        if rc != 0:
            return go_offline(log, rc)
    store_int64(&s.size_bytes, s.size_bytes + staged.bytes)
    store_int64(&log.first_unstable_offset, first_unstable(log))
    store_int64(&log.end_offset, staged.end_offset)
    staged.count = 0
    staged.bytes = 0
    return 0


cdef int make_way(Log *log, Staged *staged, const Incoming *incoming, int64_t now_ms) noexcept nogil:
    # An open segment that has room, or -errno. Nothing of the batch is touched: too many open files today may be none tomorrow.
    cdef int rc = fresh_make(log)
    if rc == 0:
        rc = should_roll(log, active(log).size_bytes + staged.bytes, incoming, now_ms)
    if rc > 0:
        rc = write_staged(log, staged)       # they belong to the old segment
        if rc == 0:
            rc = roll(log, incoming.base_offset, now_ms)
    return files_open_log(log.files, active(log)) if rc == 0 else rc


cdef void end_verification(Log *log, const Incoming *incoming, const uint8_t *batch) noexcept nogil:
    # The transaction has begun, or it is over. A marker of transaction version 2 has the epoch of the next one, which may be
    # asking already, before its coordinator has heard of this marker.
    cdef Verification *pending = verification_find(&log.verifications, batch_producer_id(batch))
    if pending == NULL or (incoming.transaction_version >= 2 and batch_attributes(batch) & ATTR_CONTROL
                           and pending.producer_epoch >= batch_producer_epoch(batch)):
        return
    verification_forget(&log.verifications, batch_producer_id(batch))


cdef int account(Log *log, const Incoming *incoming, int64_t position) noexcept nogil:
    # Indexes, producers, epochs and positions of what is to stand at `position`.
    cdef Segment *s = active(log)
    cdef int32_t at = 0
    cdef const uint8_t *batch
    cdef RecentBatch *recent
    cdef AbortedTxn aborted
    cdef int rc = 0
    while at < incoming.length and rc == 0:
        batch = incoming.data + at
        rc = segment_account(s, batch, position, log.config.index_interval_bytes)
        if rc == 0 and batch_leader_epoch(batch) > epochs_latest(&log.epochs):
            rc = epochs_assign(&log.epochs, batch_leader_epoch(batch), batch_base_offset(batch))
        if rc == 0 and batch_has_producer_id(batch):
            rc = 0 if producers_note(&log.producers, batch, batch_size_bytes(batch), &aborted) else -ENOMEM
            if log.verifications.count > 0 and batch_attributes(batch) & ATTR_TRANSACTIONAL:
                end_verification(log, incoming, batch)
            if rc == 0 and aborted.producer_id >= 0:
                rc = segment_add_txn(s, &aborted)
        recent = &log.recent[log.recent_next % RECENT_BATCHES]
        recent.base_offset = batch_base_offset(batch)
        recent.last_offset = batch_last_offset(batch)
        recent.position = position
        log.recent_next += 1
        if log.recent_count < RECENT_BATCHES:
            log.recent_count += 1
        at += batch_size_bytes(batch)
        position += batch_size_bytes(batch)
    return rc


cdef void stage(Log *log, Staged *staged, Incoming *incoming, Origin origin, int32_t leader_epoch, int64_t now_ms,
                AppendResult *out) noexcept nogil:
    cdef int rc
    if not usable(log):
        refuse(out, KAFKA_STORAGE_ERROR, -1)
        return
    if origin != FROM_LEADER and incoming.length > log.config.segment_bytes:
        refuse(out, RECORD_LIST_TOO_LARGE, -1)
        return
    if not check_producers(log, incoming, origin, now_ms, out):
        return
    if not number_batches(log, staged.end_offset, incoming, origin, leader_epoch, out):
        return
    rc = make_way(log, staged, incoming, now_ms)
    if rc != 0:
        if not out_of_files(rc):
            go_offline(log, rc)
        refuse(out, KAFKA_STORAGE_ERROR, -1)
        return
    rc = account(log, incoming, active(log).size_bytes + staged.bytes)
    if rc != 0:
        go_offline(log, rc)                  # out of memory half-way: this log's memory no longer matches its file
        refuse(out, KAFKA_STORAGE_ERROR, -1)
        return
    staged.runs[staged.count].iov_base = incoming.data
    staged.runs[staged.count].iov_len = incoming.length
    staged.count += 1
    staged.bytes += incoming.length
    staged.end_offset = incoming.last_offset + 1
    out.base_offset = incoming.base_offset
    out.last_offset = incoming.last_offset
    out.log_append_time_ms = now_ms if log.config.rules.log_append_time and origin != FROM_LEADER else -1
    out.log_start_offset = log.start_offset
    out.appended_bytes = incoming.length


cdef void validate(Append *append, Incoming *incoming, Origin origin, BatchRules *rules, int64_t start_offset, int64_t now_ms,
                   Scratch *scratch) noexcept nogil:
    cdef AppendResult *out = &append.out
    cdef int32_t rewritten_length = 0
    incoming.data = append.records
    incoming.length = append.length
    incoming.guard = append.guard
    incoming.transaction_version = append.transaction_version
    if origin == FROM_CLIENT:
        out.error = single_batch(append.records, append.length, &incoming.length, &out.verdict.message)
        if out.error != NONE:
            return                           # Kafka refuses these before it looks for the log
        validate_batch(append.records, incoming.length, origin, rules, now_ms, append.inflated, append.inflated_length,
                       scratch, &incoming.rewritten, &rewritten_length, &out.verdict)
        out.error = out.verdict.error
        out.needs_fallback = out.verdict.needs_fallback
        if rewritten_length > 0:
            incoming.data = incoming.rewritten.data
            incoming.length = rewritten_length
    else:
        rules.target_codec = -1
        validate_several(incoming, origin, rules, now_ms, scratch, out)
    if out.error != NONE:
        refuse(out, out.error, start_offset)


cdef void append_locked(Log *log, Append *appends, Incoming *incoming, int32_t count, Origin origin, int32_t leader_epoch,
                        int64_t now_ms) noexcept nogil:
    cdef Staged staged
    cdef int32_t i
    staged.count = 0
    staged.bytes = 0
    staged.end_offset = log.end_offset
    for i in range(count):
        if appends[i].out.error == NONE and not appends[i].out.needs_fallback:
            stage(log, &staged, &incoming[i], origin, leader_epoch, now_ms, &appends[i].out)
    if usable(log):
        write_staged(log, &staged)
    if not usable(log):
        fail_all(appends, count)             # the retry of a batch that was not written is told no better


cdef void fail_all(Append *appends, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        if appends[i].out.error == NONE:
            append_begin(&appends[i].out, KAFKA_STORAGE_ERROR)


cdef void log_append(Log *log, Append *appends, int32_t count, Origin origin, int32_t leader_epoch,
                     Scratch *scratch, int64_t now_ms) noexcept nogil:
    cdef BatchRules rules
    cdef Incoming incoming[APPENDS_AT_ONCE]
    cdef int16_t error = NONE
    cdef int64_t start_offset
    cdef int32_t i
    KB_ASSERT(count <= APPENDS_AT_ONCE)
    pthread_mutex_lock(&log.lock)
    rules = log.config.rules
    start_offset = log.start_offset
    if not usable(log):
        error = KAFKA_STORAGE_ERROR
    pthread_mutex_unlock(&log.lock)
    for i in range(count):
        append_begin(&appends[i].out, error)
        incoming[i].rewritten = empty_scratch()
        if error == NONE:
            validate(&appends[i], &incoming[i], origin, &rules, start_offset, now_ms, scratch)
    pthread_mutex_lock(&log.lock)
    append_locked(log, appends, incoming, count, origin, leader_epoch, now_ms)
    if log.end_offset - log.recovery_point >= log.config.flush_messages and log.directory != NULL:
        store_int64(&log.sync_target, log.end_offset)
    pthread_mutex_unlock(&log.lock)
    for i in range(count):
        scratch_free(&incoming[i].rewritten)
