/* Atomics that Cython cannot spell. Acquire/release is nearly all the data plane needs; counters are relaxed. */
#ifndef KB_ATOMICS_H
#define KB_ATOMICS_H

#define kb_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define kb_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define kb_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define kb_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define kb_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
/* Reference counts: the last release must see every write made under the other references. */
#define kb_retain(p) __atomic_fetch_add((p), 1, __ATOMIC_RELAXED)
#define kb_release(p) (__atomic_sub_fetch((p), 1, __ATOMIC_ACQ_REL) == 0)
/* Returns 1 when *p went from 0 to 1, which is how two threads agree on one wake-up. */
#define kb_raise_flag(p) (__atomic_exchange_n((p), 1, __ATOMIC_ACQ_REL) == 0)
/* Lowers the flag and acquires what every thread wrote before it raised it: also a thread that found it raised already
   and therefore sent no wake-up. A store would acquire nothing. */
#define kb_lower_flag(p) ((void) __atomic_exchange_n((p), 0, __ATOMIC_ACQ_REL))
/* Between a store and a load of something else, where two threads each look for what the other wrote. */
#define kb_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
