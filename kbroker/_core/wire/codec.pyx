# codec: one walker that reads and writes every message of the protocol by its plan.
# Owns        Plan, the C form of the fields of one (struct, version). Immutable after its constructor.
# Called by   protocol/codec.py, the door; Python threads, under the GIL.
# Fails by    DecodeError for any bytes, EncodeError for any object. Nothing read is believed: a count is checked against
#             the bytes that remain and charged to the budget before memory is taken for it.
# Invariants  A slot is reached by its offset in the object, which the class's own member descriptor names, so only
#             objects of exactly the plan's class are walked. Objects made here have every slot filled.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.float cimport PyFloat_FromDouble
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check, PyLong_FromLong, PyLong_FromLongLong
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove
from kbroker._core.limits cimport DECODE_BUDGET_BYTES, TAGS_MAX
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, load_be32, remaining, take_blob, take_bytes, take_count, take_int8, take_int16, take_int32,
    take_int64, take_string, take_uvarint,
)
from kbroker._core.wire.writer cimport (
    Writer, close_writer, open_writer, put_int8, put_int16, put_int32, put_int64, put_run, put_uvarint, room,
    store_uvarint, uvarint_length,
)

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    int PyUnicode_Check(object o)
    int PyUnicode_KIND(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    const char *PyUnicode_AsUTF8AndSize(object o, Py_ssize_t *size) except NULL
    PyTypeObject PyMemberDescr_Type
    bint PyObject_TypeCheck(object o, PyTypeObject *cls)
    object PyType_GenericAlloc(type cls, Py_ssize_t count)

cdef enum Kind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    UUID
    STRING
    CLASSIC_STRING
    BYTES
    STRUCT

cdef dict KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32, "int64": INT64,
    "float64": FLOAT64, "uuid": UUID, "string": STRING, "classic_string": CLASSIC_STRING, "bytes": BYTES,
    "records": BYTES,
}

cdef enum:
    DEPTH_MAX = 12          # structs within structs; the schemas need five
    GC_HEAD_BYTES = 16
    INT_BYTES = 32          # what one object of the kind costs CPython, roughly and from above
    LIST_BYTES = 72
    TEXT_BYTES = 64
    STRING_MAX_BYTES = 32767
    FIRST_CAPACITY = 512

cdef struct Op:
    PyObject *name          # references are held by the plan's `keep`
    PyObject *nested        # Plan of a struct or of an array's elements
    PyObject *fallback      # the default; NULL: made fresh
    Py_ssize_t slot
    int64_t element_min     # an array's: fewest bytes an element takes on the wire
    int64_t element_bytes   # and what it costs in memory
    Kind kind
    int32_t tag
    bint array
    bint nullable
    bint flexible
    bint ignorable


class DecodeError(ValueError):
    def __init__(self, reason, path, offset):
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.reason = reason
        self.path = path
        self.offset = offset


class EncodeError(ValueError):
    pass


cdef class Plan:
    cdef type cls
    cdef readonly str title
    cdef readonly bint flexible
    cdef readonly int64_t min_bytes
    cdef readonly int64_t object_bytes
    cdef Op *ops                # body, then tagged (ascending), then absent
    cdef int32_t body_end
    cdef int32_t tagged_end
    cdef int32_t absent_end
    cdef list keep

    def __cinit__(self, type cls, str title, bint flexible, list body, list tagged, list absent):
        self.cls = cls
        self.title = title
        self.flexible = flexible
        self.keep = [body, tagged, absent]
        self.body_end = len(body)
        self.tagged_end = self.body_end + len(tagged)
        self.absent_end = self.tagged_end + len(absent)
        self.ops = <Op *> calloc(self.absent_end + 1, sizeof(Op))
        if self.ops == NULL:
            raise MemoryError
        self.object_bytes = (<PyTypeObject *> cls).tp_basicsize + GC_HEAD_BYTES
        cdef int32_t i = 0
        for step in body:
            fill_op(self, &self.ops[i], step)
            self.min_bytes += smallest(&self.ops[i])
            i += 1
        for steps in (tagged, absent):
            for step in steps:
                fill_op(self, &self.ops[i], step)
                i += 1
        if flexible:
            self.min_bytes += 1

    def __dealloc__(self):
        free(self.ops)


cdef int fill_op(Plan plan, Op *op, tuple step) except -1:
    cdef object name, base, default, nested, descriptor
    name, base, op.array, op.nullable, op.flexible, op.tag, default, op.ignorable, nested = step
    descriptor = plan.cls.__dict__[name]
    if not PyObject_TypeCheck(descriptor, &PyMemberDescr_Type):
        raise TypeError(f"{plan.title}: {name} is not a slot of {plan.cls}")
    op.slot = (<PyMemberDescrObject *> descriptor).d_member.offset
    op.name = <PyObject *> name
    op.fallback = NULL if default is ... else <PyObject *> default
    op.kind = STRUCT if nested is not None else KINDS[base]
    op.nested = NULL if nested is None else <PyObject *> nested
    if op.array:
        op.element_min = max(1, (<Plan> nested).min_bytes if op.kind == STRUCT else scalar_min(op))
        op.element_bytes = sizeof(void *)
        op.element_bytes += (<Plan> nested).object_bytes if op.kind == STRUCT else scalar_bytes(op.kind)
        plan.object_bytes += LIST_BYTES
    elif op.kind == STRUCT:
        plan.object_bytes += (<Plan> nested).object_bytes
    else:
        plan.object_bytes += scalar_bytes(op.kind)
    return 0


cdef int64_t scalar_bytes(Kind kind) noexcept:
    # Strings and bytes are charged when they are read: their size is not known before.
    if kind in (BOOL, INT8, STRING, CLASSIC_STRING, BYTES):
        return 0
    return TEXT_BYTES if kind == UUID else INT_BYTES


cdef int64_t scalar_min(const Op *op) noexcept:
    if op.kind in (BOOL, INT8):
        return 1
    if op.kind in (INT16, UINT16, CLASSIC_STRING):
        return 2
    if op.kind in (INT32, UINT32):
        return 4
    if op.kind in (INT64, FLOAT64):
        return 8
    if op.kind == UUID:
        return 16
    if op.flexible:
        return 1
    return 2 if op.kind == STRING else 4


cdef int64_t smallest(const Op *op) noexcept:
    if op.array:
        return 1 if op.flexible else 4
    if op.kind != STRUCT:
        return scalar_min(op)
    return 1 if op.nullable else (<Plan> op.nested).min_bytes


# ---------------------------------------------------------------------------------------------------------- reading

cdef struct Reader:
    Cursor c
    const uint8_t *start
    int64_t budget
    int32_t depth
    const Op *at[DEPTH_MAX]       # the field that each open struct is at, for the path of an error
    int32_t index[DEPTH_MAX]      # and the element, -1 outside arrays


def decode(Plan plan not None, data, Py_ssize_t offset=0, budget=None):
    """The object that starts at `offset`, and the offset behind it. `budget` bounds the memory that may be taken."""
    cdef Py_buffer view
    cdef Reader r
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if offset < 0 or offset > view.len:
            raise DecodeError("starts outside the data", plan.title, offset)
        r.start = <const uint8_t *> view.buf
        r.c = cursor_over(r.start + offset, view.len - offset)
        r.budget = DECODE_BUDGET_BYTES + view.len if budget is None else budget
        r.depth = -1
        charge(&r, plan, plan.object_bytes)
        value = read_struct(&r, plan, plan)
        return value, r.c.at - r.start
    finally:
        PyBuffer_Release(&view)


cdef object broken(Reader *r, Plan root, str reason):
    cdef str path = root.title
    cdef int32_t level
    for level in range(r.depth + 1):
        if r.at[level] != NULL:
            path += ("." if level else ": ") + <str> r.at[level].name
            if r.index[level] >= 0:
                path += f"[{r.index[level]}]"
    return DecodeError(reason, path, r.c.at - r.start)


cdef inline int charge(Reader *r, Plan root, int64_t count) except -1:
    r.budget -= count
    if r.budget < 0:
        raise broken(r, root, "takes more memory than one request may")
    return 0


cdef inline void put_slot(object target, Py_ssize_t slot, object value) noexcept:
    cdef PyObject **place = <PyObject **> (<char *> <PyObject *> target + slot)
    cdef PyObject *old = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *> value
    Py_XDECREF(old)


cdef object fallback_of(const Op *op):
    if op.fallback != NULL:
        return <object> op.fallback
    if op.array:
        return []
    return (<Plan> op.nested).cls()


cdef object read_struct(Reader *r, Plan plan, Plan root):
    cdef object made = PyType_GenericAlloc(plan.cls, 0)
    cdef int32_t i
    cdef Op *op
    if r.depth + 1 >= DEPTH_MAX:
        raise broken(r, root, "is nested too deeply")
    r.depth += 1
    r.index[r.depth] = -1
    for i in range(plan.body_end):
        op = &plan.ops[i]
        r.at[r.depth] = op
        put_slot(made, op.slot, read_field(r, op, root, False))
    for i in range(plan.body_end, plan.absent_end):
        op = &plan.ops[i]
        put_slot(made, op.slot, fallback_of(op))
    if plan.flexible:
        read_tags(r, plan, made, root)
    r.depth -= 1
    return made


cdef int read_tags(Reader *r, Plan plan, object made, Plan root) except -1:
    # A known tag may use exactly its size; an unknown one is passed over and not kept.
    cdef uint32_t count, tag, size
    cdef int32_t i
    cdef const uint8_t *outer_end
    r.at[r.depth] = NULL
    count = take_uvarint(&r.c)
    if r.c.truncated or 2 * <int64_t> count > remaining(&r.c):
        raise broken(r, root, "ends before its tagged fields do")
    if count > TAGS_MAX:
        raise broken(r, root, f"has {count} tagged fields, more than {<int> TAGS_MAX}")
    while count > 0:
        count -= 1
        tag = take_uvarint(&r.c)
        size = take_uvarint(&r.c)
        if r.c.truncated or size > remaining(&r.c):
            raise broken(r, root, "ends inside a tagged field")
        for i in range(plan.body_end, plan.tagged_end):
            if <uint32_t> plan.ops[i].tag == tag:
                break
        else:
            take_bytes(&r.c, size)
            continue
        outer_end = r.c.end
        r.c.end = r.c.at + size
        r.at[r.depth] = &plan.ops[i]
        charge(r, root, LIST_BYTES)
        put_slot(made, plan.ops[i].slot, read_field(r, &plan.ops[i], root, True))
        if r.c.at != r.c.end:
            raise broken(r, root, "is shorter than its tag says")
        r.c.end = outer_end
        r.at[r.depth] = NULL
    return 0


cdef object read_field(Reader *r, const Op *op, Plan root, bint in_tag):
    cdef bint present = True
    if op.array:
        return read_array(r, op, root)
    if op.kind != STRUCT:
        return read_scalar(r, op, root)
    if op.nullable:
        # The marker of a null struct: a signed byte, but an unsigned varint inside a tagged field.
        present = take_uvarint(&r.c) != 0 if in_tag else take_int8(&r.c) >= 0
        if r.c.truncated:
            raise broken(r, root, "runs past the end")
        if not present:
            return None
    return read_struct(r, <Plan> op.nested, root)


cdef object read_array(Reader *r, const Op *op, Plan root):
    cdef int32_t count = take_count(&r.c, op.flexible, <int32_t> op.element_min)
    cdef int32_t i
    cdef Plan nested
    cdef object element
    if r.c.truncated:
        raise broken(r, root, "counts more elements than there are bytes for")
    if count < 0:
        if not op.nullable:
            raise broken(r, root, "is null")
        return None
    charge(r, root, LIST_BYTES + count * op.element_bytes)
    cdef list made = PyList_New(count)
    if op.kind == STRUCT:
        nested = <Plan> op.nested
        for i in range(count):
            r.index[r.depth] = i
            element = read_struct(r, nested, root)
            Py_INCREF(element)
            PyList_SET_ITEM(made, i, element)
    elif op.kind == INT32:                 # replicas and partitions: take_count has seen that they are all there
        for i in range(count):
            element = PyLong_FromLong(<int32_t> load_be32(r.c.at))
            r.c.at += 4
            Py_INCREF(element)
            PyList_SET_ITEM(made, i, element)
    else:
        for i in range(count):
            r.index[r.depth] = i
            element = read_scalar(r, op, root)
            Py_INCREF(element)
            PyList_SET_ITEM(made, i, element)
    r.index[r.depth] = -1
    return made


cdef object read_scalar(Reader *r, const Op *op, Plan root):
    cdef const uint8_t *p
    cdef int64_t number
    cdef uint64_t bits
    cdef double real
    if op.kind >= STRING:
        return read_sized(r, op, root)
    if op.kind == UUID:
        p = take_bytes(&r.c, 16)
        if p == NULL:
            raise broken(r, root, "runs past the end")
        return PyBytes_FromStringAndSize(<const char *> p, 16)
    if op.kind == INT32:
        number = take_int32(&r.c)
    elif op.kind == INT64:
        number = take_int64(&r.c)
    elif op.kind == INT16:
        number = take_int16(&r.c)
    elif op.kind == UINT16:
        number = <int64_t> take_int16(&r.c) & 0xffff
    elif op.kind == UINT32:
        number = <int64_t> take_int32(&r.c) & 0xffffffff
    elif op.kind == FLOAT64:
        bits = <uint64_t> take_int64(&r.c)
        if r.c.truncated:
            raise broken(r, root, "runs past the end")
        memcpy(&real, &bits, 8)
        return PyFloat_FromDouble(real)
    else:
        number = take_int8(&r.c)
    if r.c.truncated:
        raise broken(r, root, "runs past the end")
    if op.kind == BOOL:
        return number != 0
    return PyLong_FromLongLong(number)


cdef object read_sized(Reader *r, const Op *op, Plan root):
    cdef int32_t length
    cdef const uint8_t *p
    if op.kind == BYTES:
        p = take_blob(&r.c, op.flexible, &length)
    else:
        p = take_string(&r.c, op.flexible and op.kind == STRING, &length)
    if r.c.truncated:
        raise broken(r, root, "runs past the end")
    if length < 0:
        if not op.nullable:
            raise broken(r, root, "is null")
        return None
    charge(r, root, TEXT_BYTES + length)
    if op.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *> p, length)
    if length > STRING_MAX_BYTES:
        raise broken(r, root, f"is a string of {length} bytes, longer than {<int> STRING_MAX_BYTES}")
    try:
        text = PyUnicode_DecodeUTF8(<const char *> p, length, NULL)
    except UnicodeDecodeError:
        raise broken(r, root, "is not UTF-8") from None
    if PyUnicode_KIND(text) > 1:           # one wide character makes all of them wide
        charge(r, root, PyUnicode_KIND(text) * PyUnicode_GET_LENGTH(text))
    return text


# ---------------------------------------------------------------------------------------------------------- writing

def encode(Plan plan not None, value, bytes prefix=b""):
    """`prefix` and the object's bytes behind it."""
    cdef Writer w
    open_writer(&w, FIRST_CAPACITY + PyBytes_GET_SIZE(prefix))
    try:
        put_run(&w, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        write_struct(&w, plan, value)
        return PyBytes_FromStringAndSize(<const char *> w.data, w.used)
    except EncodeError as error:
        raise EncodeError(f"{plan.title}: {error}") from None
    finally:
        close_writer(&w)


cdef object refused(const Op *op, str reason):
    return EncodeError(f"{<str> op.name} {reason}")


cdef inline object get_slot(object owner, const Op *op):
    cdef PyObject *value = (<PyObject **> (<char *> <PyObject *> owner + op.slot))[0]
    if value == NULL:
        raise refused(op, "is not set")
    return <object> value


cdef bint is_default(const Op *op, object value) except -1:
    if op.fallback != NULL:
        return value is <object> op.fallback or PyObject_RichCompareBool(value, <object> op.fallback, Py_EQ)
    if op.array:
        return isinstance(value, (list, tuple)) and len(value) == 0
    return value is not None and PyObject_RichCompareBool(value, (<Plan> op.nested).cls(), Py_EQ)


cdef int write_struct(Writer *w, Plan plan, object value) except -1:
    cdef int32_t i
    cdef const Op *op
    if type(value) is not plan.cls:
        raise EncodeError(f"{plan.cls.__qualname__} is wanted, not {type(value).__qualname__}")
    for i in range(plan.body_end):
        op = &plan.ops[i]
        write_field(w, op, get_slot(value, op), False)
    for i in range(plan.tagged_end, plan.absent_end):
        op = &plan.ops[i]
        if not op.ignorable and not is_default(op, get_slot(value, op)):
            raise refused(op, "is not in this version, and its value would be lost")
    if plan.flexible:
        write_tags(w, plan, value)
    return 0


cdef int write_tags(Writer *w, Plan plan, object value) except -1:
    cdef uint32_t count = 0
    cdef int32_t i
    cdef const Op *op
    cdef int64_t start, size
    cdef int extra
    for i in range(plan.body_end, plan.tagged_end):
        op = &plan.ops[i]
        count += not is_default(op, get_slot(value, op))
    put_uvarint(w, count)
    if count == 0:
        return 0
    for i in range(plan.body_end, plan.tagged_end):
        op = &plan.ops[i]
        if is_default(op, get_slot(value, op)):
            continue
        put_uvarint(w, op.tag)
        # The size stands before the value: one byte is kept for it, and the value moves on if that was too few.
        room(w, 1)
        start = w.used
        write_field(w, op, get_slot(value, op), True)
        size = w.used - start
        extra = uvarint_length(<uint32_t> size) - 1
        if extra:
            room(w, extra)
            memmove(w.data + start + extra, w.data + start, size)
        store_uvarint(w.data + start - 1, <uint32_t> size)
    return 0


cdef int write_field(Writer *w, const Op *op, object value, bint in_tag) except -1:
    if op.array:
        return write_array(w, op, value)
    if op.kind != STRUCT:
        return write_scalar(w, op, value)
    if value is None and not op.nullable:
        raise refused(op, "is null")
    if op.nullable:
        if value is None:
            return put_int8(w, 0 if in_tag else -1)
        put_int8(w, 1)
    return write_struct(w, <Plan> op.nested, value)


cdef int write_length(Writer *w, bint flexible, bint wide, int64_t length) except -1:
    # -1 is null.
    if flexible:
        return put_uvarint(w, <uint32_t> (length + 1))
    return put_int32(w, <int32_t> length) if wide else put_int16(w, <int16_t> length)


cdef int write_array(Writer *w, const Op *op, object value) except -1:
    cdef Py_ssize_t i, count
    cdef Plan nested
    if value is None:
        if not op.nullable:
            raise refused(op, "is null")
        return write_length(w, op.flexible, True, -1)
    if not PyList_CheckExact(value):
        if not isinstance(value, (list, tuple)):
            raise refused(op, f"is a {type(value).__name__}, not a list")
        value = list(value)
    count = PyList_GET_SIZE(value)
    if count >= 0x7fffffff:
        raise refused(op, "has too many elements")
    write_length(w, op.flexible, True, count)
    nested = <Plan> op.nested if op.kind == STRUCT else None
    for i in range(count):
        if i >= PyList_GET_SIZE(value):
            raise refused(op, "changed while it was written")
        if op.kind == STRUCT:
            write_struct(w, nested, <object> PyList_GET_ITEM(value, i))
        else:
            write_scalar(w, op, <object> PyList_GET_ITEM(value, i))
    return 0


cdef int64_t integer(const Op *op, object value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        raise refused(op, f"is a {type(value).__name__}, not an int")
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < low or number > high:
        raise refused(op, f"is {value}, outside {low} to {high}")
    return number


cdef int write_scalar(Writer *w, const Op *op, object value) except -1:
    cdef double real
    cdef uint64_t bits
    if op.kind == INT32:
        return put_int32(w, <int32_t> integer(op, value, -0x80000000, 0x7fffffff))
    if op.kind >= STRING:
        return write_sized(w, op, value)
    if op.kind == INT64:
        return put_int64(w, integer(op, value, INT64_MIN, INT64_MAX))
    if op.kind == INT16:
        return put_int16(w, <int16_t> integer(op, value, -0x8000, 0x7fff))
    if op.kind == INT8:
        return put_int8(w, <int8_t> integer(op, value, -0x80, 0x7f))
    if op.kind == BOOL:
        return put_int8(w, integer(op, value, 0, 1) != 0)
    if op.kind == UINT16:
        return put_int16(w, <int16_t> integer(op, value, 0, 0xffff))
    if op.kind == UINT32:
        return put_int32(w, <int32_t> integer(op, value, 0, 0xffffffff))
    if op.kind == UUID:
        if not PyBytes_Check(value) or PyBytes_GET_SIZE(value) != 16:
            raise refused(op, "is not 16 bytes")
        return put_run(w, PyBytes_AS_STRING(value), 16)
    if not isinstance(value, (float, int)):
        raise refused(op, f"is a {type(value).__name__}, not a float")
    try:
        real = value
    except OverflowError:
        raise refused(op, "is too large for a float") from None
    memcpy(&bits, &real, 8)
    return put_int64(w, <int64_t> bits)


cdef int write_sized(Writer *w, const Op *op, object value) except -1:
    cdef Py_ssize_t length = 0
    cdef const char *text
    cdef bint flexible = op.flexible and op.kind != CLASSIC_STRING
    if value is None:
        if not op.nullable:
            raise refused(op, "is null")
        return write_length(w, flexible, op.kind == BYTES, -1)
    if op.kind == BYTES:
        if not PyBytes_Check(value):
            if not isinstance(value, (bytearray, memoryview)):
                raise refused(op, f"is a {type(value).__name__}, not bytes")
            value = bytes(value)
        length = PyBytes_GET_SIZE(value)
        if length >= 0x7fffffff:
            raise refused(op, f"is {length} bytes long")
        write_length(w, flexible, True, length)
        return put_run(w, PyBytes_AS_STRING(value), length)
    if not PyUnicode_Check(value):
        raise refused(op, f"is a {type(value).__name__}, not a str")
    try:
        text = PyUnicode_AsUTF8AndSize(value, &length)
    except UnicodeEncodeError:
        raise refused(op, "cannot be written as UTF-8") from None
    if length > STRING_MAX_BYTES:
        raise refused(op, f"is a string of {length} bytes, longer than {<int> STRING_MAX_BYTES}")
    write_length(w, flexible, False, length)
    return put_run(w, text, length)
