"""A wire between clients and the broker that can be slow, dead or cut, and that can lie.

The broker advertises the proxy's address, so that every connection goes through it, and may come back on another port.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from bench.campaigns.jepsen.lies import SIZE_BYTES, Lie

Change = Callable[[bytes], bytes]
CHUNK = 1 << 16


class Proxy:
    """Runs on a thread of its own. The methods may be called from any other."""

    def __init__(self, lie: type[Lie] | None = None) -> None:
        self.port = 0
        self.target = 0  # the broker's port; 0: nobody is there
        self._lie = lie
        self._delay_s = 0.0
        self._flowing = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Every connection is reset."""
        self._on_loop(self._cut)

    def be_true(self) -> None:
        """No lies any more; whoever was lied to connects again."""
        self._on_loop(lambda: setattr(self, "_lie", None))
        self.cut()

    def slow(self, delay_s: float) -> None:
        """Each piece of each direction arrives this much later."""
        self._on_loop(lambda: setattr(self, "_delay_s", delay_s))

    def block(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self._on_loop(self._flowing.clear)

    def heal(self) -> None:
        self.slow(0.0)
        self._on_loop(self._flowing.set)

    def _on_loop(self, act: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(act)

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._flowing.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        self._loop.run_until_complete(self._settle())
        self._loop.close()

    async def _settle(self) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            if not self.target:
                return
            other, upstream = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(upstream)
            lie = None if self._lie is None else self._lie()
            pumps = [
                asyncio.create_task(self._pump(reader, upstream, None if lie is None else lie.request)),
                asyncio.create_task(self._pump(other, writer, None if lie is None else lie.response)),
            ]
            _done, pending = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
        except OSError:
            pass  # nobody is there: the client sees its connection close
        finally:
            for end in (writer, upstream):
                if end is not None:
                    self._open.discard(end)
                    end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Change | None) -> None:
        with suppress(OSError, EOFError):
            while data := await _piece(reader, change):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


async def _piece(reader: asyncio.StreamReader, change: Change | None) -> bytes:
    """What is there, or if something may be changed, a whole frame."""
    if change is None:
        return await reader.read(CHUNK)
    size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
    changed = change(await reader.readexactly(size))
    return len(changed).to_bytes(SIZE_BYTES, "big") + changed
