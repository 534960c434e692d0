"""XXH3 in 64 bits: the hash that Kafka remembers a group's topics by.

Written for inputs of a few kilobytes that change rarely. The long form works on rows of eight lanes.
"""

from __future__ import annotations

import struct

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE, _ACC_STEP = 64, 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _ACC_STEP
_LANES = struct.Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """Unsigned, without a seed."""
    size = len(data)
    if size <= 16:
        return _up_to_16(data, size)
    if size <= 128:
        return _up_to_128(data, size)
    return _up_to_240(data, size) if size <= 240 else _long(data, size)


def _le64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _le32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _MX1 & _M64
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _M64
    value = (value ^ value >> 29) * _P64_3 & _M64
    return value ^ value >> 32


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _M64) ^ product >> 64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _M64


def _swapped(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _up_to_16(data: bytes, size: int) -> int:
    if size > 8:
        low = _le64(data, 0) ^ _le64(_SECRET, 24) ^ _le64(_SECRET, 32)
        high = _le64(data, size - 8) ^ _le64(_SECRET, 40) ^ _le64(_SECRET, 48)
        return _avalanche((size + _swapped(low) + high + _fold(low, high)) & _M64)
    if size >= 4:
        both = _le32(data, size - 4) + (_le32(data, 0) << 32)
        keyed = both ^ _le64(_SECRET, 8) ^ _le64(_SECRET, 16)
        keyed ^= _rotated(keyed, 49) ^ _rotated(keyed, 24)
        keyed = keyed * _MX2 & _M64
        keyed ^= (keyed >> 35) + size
        keyed = keyed * _MX2 & _M64
        return keyed ^ keyed >> 28
    if size:
        packed = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_64(packed ^ _le32(_SECRET, 0) ^ _le32(_SECRET, 4))
    return _avalanche_64(_le64(_SECRET, 56) ^ _le64(_SECRET, 64))


def _mix(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_le64(data, at) ^ _le64(_SECRET, secret_at), _le64(data, at + 8) ^ _le64(_SECRET, secret_at + 8))


def _up_to_128(data: bytes, size: int) -> int:
    value = size * _P64_1
    for step in range((size - 1) // 32, -1, -1):
        value += _mix(data, 16 * step, 32 * step) + _mix(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(value & _M64)


def _up_to_240(data: bytes, size: int) -> int:
    value = size * _P64_1
    for step in range(8):
        value += _mix(data, 16 * step, 16 * step)
    value = _avalanche(value & _M64)
    for step in range(8, size // 16):
        value += _mix(data, 16 * step, 16 * (step - 8) + 3)
    return _avalanche((value + _mix(data, size - 16, 136 - 17)) & _M64)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    row = _LANES.unpack_from(data, at)
    keys = _LANES.unpack_from(_SECRET, secret_at)
    for lane in range(8):
        keyed = row[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + row[lane]) & _M64
        lanes[lane] = (lanes[lane] + (keyed & _M32) * (keyed >> 32)) & _M64


def _scramble(lanes: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for lane in range(8):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ keys[lane]) * _P32_1 & _M64


def _long(data: bytes, size: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        place = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, place * _ACC_STEP)
        if place == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    value = size * _P64_1
    for lane in range(0, 8, 2):
        keys = _le64(_SECRET, 11 + 8 * lane), _le64(_SECRET, 11 + 8 * lane + 8)
        value += _fold(lanes[lane] ^ keys[0], lanes[lane + 1] ^ keys[1])
    return _avalanche(value & _M64)
