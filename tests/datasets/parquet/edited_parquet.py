"""Edits the metadata and the page headers of Parquet files, which are structs in Thrift's compact protocol
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md): for files as other writers make them, and for damaged
ones. A struct is a dictionary of its fields' numbers, which parquet.thrift names, with [type, value] each; a list is (type, values).
"""

import struct

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12


class Reader:
    def __init__(self, content, place):
        self.content, self.place = content, place

    def take(self, count):
        self.place += count
        return bytes(self.content[self.place - count:self.place])

    def varint(self):
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return number

    def zigzag(self):
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def value(self, kind):
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in (INT16, INT32, INT64):
            return self.zigzag()
        if kind in (BYTE, DOUBLE):
            return self.take(1 if kind == BYTE else 8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct()
        assert kind in (LIST, SET), kind
        header = self.take(1)[0]
        count, element = header >> 4, header & 0xf
        count = self.varint() if count == 15 else count
        return element, [self.take(1) if element in (TRUE, FALSE) else self.value(element) for _ in range(count)]

    def struct(self):
        fields, number = {}, 0
        while header := self.take(1)[0]:
            number = number + (header >> 4) if header >> 4 else self.zigzag()
            fields[number] = [header & 0xf, self.value(header & 0xf)]
        return fields


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def zigzag(number):
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def value_bytes(kind, value):
    if kind in (INT16, INT32, INT64):
        return zigzag(value)
    if kind in (BYTE, DOUBLE):
        return value
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == STRUCT:
        return struct_bytes(value)
    element, values = value
    header = bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([0xf0 | element]) + varint(len(values))
    return header + b"".join(x if element in (TRUE, FALSE) else value_bytes(element, x) for x in values)


def struct_bytes(fields):
    out, last = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        kind = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        out += bytes([number - last << 4 | kind]) if 0 < number - last < 16 else bytes([kind]) + zigzag(number)
        out += b"" if kind in (TRUE, FALSE) else value_bytes(kind, value)
        last = number
    return out + b"\0"


class EditedFile:
    """A file with one row group and one column, which is written again by save()."""

    def __init__(self, path):
        content = path.read_bytes()
        length = struct.unpack("<I", content[-8:-4])[0]
        self.path, self.body = path, content[:-8 - length]
        self.metadata = Reader(content, len(content) - 8 - length).struct()
        self.group = self.metadata[4][1][1][0]
        self.chunk = self.group[1][1][1][0][3][1]  # ColumnMetaData

    def page(self, offset):
        """Returns the header of the page there, and where its contents begin."""
        reader = Reader(self.body, offset)
        return reader.struct(), reader.place

    def save(self):
        footer = struct_bytes(self.metadata)
        self.path.write_bytes(self.body + footer + struct.pack("<I", len(footer)) + b"PAR1")
