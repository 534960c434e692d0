/* KB_ASSERT guards our own invariants, in release builds too. Input from the wire never reaches one. */
#ifndef KB_KASSERT_H
#define KB_KASSERT_H

#include <stdio.h>
#include <stdlib.h>

#define KB_ASSERT(condition)                                                                                   \
    do {                                                                                                       \
        if (__builtin_expect(!(condition), 0)) {                                                               \
            fprintf(stderr, "kbroker: broken invariant at %s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            fflush(stderr);                                                                                    \
            abort();                                                                                           \
        }                                                                                                      \
    } while (0)

#endif
