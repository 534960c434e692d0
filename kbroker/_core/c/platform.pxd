# platform: the declaration of c/platform.h, and nothing else.
cdef extern from "kbroker/_core/c/platform.h" nogil:
    enum:
        LINUX_CALLS "KB_LINUX"               # 0 in a portable build
