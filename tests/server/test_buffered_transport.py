"""Writes of a connection are joined, and the order of its bytes is kept."""

import asyncio
from asyncio import Transport

from convo.server.server import MAX_BUFFERED_BYTES, BufferedTransport


class WriteLog(Transport):
    """A transport that keeps the data of each write; "closed" follows the last one."""

    def __init__(self) -> None:
        super().__init__(extra={"peername": ("127.0.0.1", 1)})
        self.writes: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.writes.append("closed")


async def test_writes_until_the_next_pass_of_the_loop_are_one_write() -> None:
    log = WriteLog()
    transport = BufferedTransport(log, asyncio.get_running_loop())
    transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
    transport.write(b"body")
    assert log.writes == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log.writes == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"next"]
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)


async def test_a_full_buffer_is_written_at_once() -> None:
    log = WriteLog()
    transport = BufferedTransport(log, asyncio.get_running_loop())
    transport.write(bytes(MAX_BUFFERED_BYTES))
    assert log.writes == []
    transport.write(b"1")
    assert log.writes == [bytes(MAX_BUFFERED_BYTES) + b"1"]
    transport.write(bytes(MAX_BUFFERED_BYTES))
    assert len(log.writes) == 1
    await asyncio.sleep(0)
    assert log.writes[1:] == [bytes(MAX_BUFFERED_BYTES)]


async def test_the_buffer_is_written_before_the_connection_is_closed() -> None:
    log = WriteLog()
    transport = BufferedTransport(log, asyncio.get_running_loop())
    transport.write(b"last")
    transport.close()
    await asyncio.sleep(0)
    assert log.writes == [b"last", "closed"]
