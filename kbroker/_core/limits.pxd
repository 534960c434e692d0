# limits: every bound of the data plane, in one place. A bound that a setting can move is the ceiling of that setting.
cdef enum:
    FRAME_HEADER_MIN_BYTES = 8             # api key, version, correlation id
    RECEIVE_CHUNK_BYTES = 262144           # the loop's shared receive buffer: one recv
    CONNECTION_BUFFER_FIRST_BYTES = 16384  # a partial frame moves here and grows with what has arrived
    REPLY_BYTES_IN_FLIGHT_MAX = 4194304    # unsent reply bytes per connection before it stops being read
    REPLIES_IN_FLIGHT_MAX = 128            # and unsent replies
    MAILBOX_SLOTS = 8192                   # posted requests not yet taken by the control loop
    MAILBOX_BYTES_MAX = 268435456          # and their bytes
    EPOLL_EVENTS = 256
    ACCEPT_BURST = 1024
    IOV_PIECES = 64                        # byte runs per writev
    SENDFILE_CHUNK_BYTES = 2097152         # per turn and connection, so that one reader cannot hold the thread
    DECOMPRESSED_BATCH_MAX_BYTES = 134217728
    SCRATCH_KEEP_BYTES = 4194304           # a scratch buffer that grew past this is given back
    FETCH_SESSIONS_MAX = 1000
    FETCH_PARTITIONS_MAX = 100000
    PRODUCER_BATCHES_KEPT = 5
    RECORD_ERRORS_MAX = 100                # offending indexes reported per batch
    TAGS_MAX = 1024                        # tagged fields per structure
