/* Which system calls this build may use. KB_LINUX is 1 on Linux and 0 on other systems.
 *
 * KBROKER_PORTABLE=1 at build time (setup.py) makes it 0 on Linux too, so that the calls that macOS gets are compiled and
 * tested there. The headers beside this one give each operation one name for both builds:
 *
 *   readiness.h    epoll or poll, eventfd or pipe
 *   sockets.h      accept, sendfile, corking, bytes in a socket's queues
 *   filesystem.h   nameless files, reserved blocks, residency in the page cache, fsync
 */
#ifndef KB_PLATFORM_H
#define KB_PLATFORM_H

#if defined(__linux__) && !defined(KBROKER_PORTABLE)
#define KB_LINUX 1
#else
#define KB_LINUX 0
#endif

#endif
