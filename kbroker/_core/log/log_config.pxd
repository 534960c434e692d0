# log_config: a topic's settings, checked and in the form that a log works by.
# Called by   the door, when a log is opened or configured.
# Fails by    ValueError with a sentence.
from kbroker._core.log.state cimport LogConfig

cdef int read_config(object config, LogConfig *out) except -1
