# views: what the clients of one listener see, and the making of the tables they see it by.
# Owns        the View behind a ViewHandle, which holds a reference to its current table.
# Called by   core and the control side, which publishes a table whole.
# Threads     publish: one at a time. Network threads take the current table with view_acquire.
from kbroker._core.partitions cimport View

cdef class ViewHandle:
    cdef View v
