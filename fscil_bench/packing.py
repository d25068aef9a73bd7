"""Numbers of up to 16 bits in little space: features in many steps are mostly zeros and noise.

A matrix of codes becomes three streams, dimension by dimension: which codes are not zero (a bit each), the upper 8 bits
of those that are not, and what bits they have below. The first two are Huffman-coded; the lowest bits are noise that
no coder makes smaller, so they are only put side by side.
"""

import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]
DIMENSIONS = 16  # unpacked at a time: what is worked on stays in the processor's cache


def pack(codes: Codes, greatest: int) -> dict[str, npt.NDArray[np.generic]]:
    """The streams of `codes` [N, d], none above `greatest`; `layout` is N, d and the number of bits in `lower`."""
    below = max(0, (greatest - 1).bit_length() - 8)
    by_dimension = np.ascontiguousarray(codes.T)
    nonzero = by_dimension != 0
    values = by_dimension[nonzero] - np.uint16(1)
    lower = (values & ((1 << below) - 1)).astype(np.uint8)
    return {
        "layout": np.array([*codes.shape, below], dtype=np.int64),
        "nonzero": _squeeze(np.packbits(nonzero)),
        "upper": _squeeze((values >> below).astype(np.uint8)),
        "lower": np.packbits(np.unpackbits(lower[:, None], axis=1, count=below, bitorder="little")),
    }


def unpack(streams: Mapping[str, npt.NDArray[np.generic]]) -> Codes:
    """The codes [N, d] that `pack` was given. Streams that do not fit together are a ValueError."""
    rows, dimensions, below = (int(number) for number in streams["layout"])
    size = rows * dimensions
    if min(rows, dimensions) < 0 or not 0 <= below <= 8:
        raise ValueError(f"no codes have the layout {rows}, {dimensions}, {below}")
    bits = _restore("nonzero", streams["nonzero"], -(-size // 8))
    nonzero = np.unpackbits(bits, count=size).view(np.bool_).reshape(dimensions, rows)
    counts = nonzero.sum(axis=1)
    count = int(counts.sum())
    upper = _restore("upper", streams["upper"], count)
    if streams["lower"].size != -(-count * below // 8):
        raise ValueError("the stream of lower bits is damaged: it has another length")
    noise = np.unpackbits(streams["lower"].astype(np.uint8, copy=False), count=count * below).reshape(count, below)
    values = upper.astype(np.uint16)
    values <<= below
    for bit in range(below):
        values |= noise[:, bit].astype(np.uint16) << bit
    values += 1
    codes = np.empty((rows, dimensions), dtype=np.uint16)
    ends = np.concatenate(([0], np.cumsum(counts)))
    for first in range(0, dimensions, DIMENSIONS):
        part = nonzero[first : first + DIMENSIONS]
        filled = np.zeros(part.shape, dtype=np.uint16)
        filled[part] = values[ends[first] : ends[first + len(part)]]
        codes[:, first : first + len(part)] = filled.T
    return codes


def _squeeze(data: Bytes) -> Bytes:
    """Huffman-coded: there are no repetitions to look for, which is what makes deflate slow."""
    coder = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL + 1, zlib.Z_HUFFMAN_ONLY)
    return np.frombuffer(bytearray(coder.compress(data.tobytes()) + coder.flush()), dtype=np.uint8)


def _restore(name: str, stream: npt.NDArray[np.generic], size: int) -> Bytes:
    """What `_squeeze` made smaller; never more than the `size` bytes expected, whatever the stream claims."""
    decoder = zlib.decompressobj()
    try:
        data = decoder.decompress(stream.tobytes(), size + 1)
    except zlib.error as error:
        raise ValueError(f"the stream of {name} is damaged: {error}") from error
    if len(data) != size or not decoder.eof:
        raise ValueError(f"the stream of {name} is damaged: it ends elsewhere than after {size} bytes")
    return np.frombuffer(data, dtype=np.uint8)
