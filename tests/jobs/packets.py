"""IPv4 packets of TCP and UDP, as an attacker on the path reads and changes them."""

import struct

TCP, UDP = 6, 17


def protocol_of(packet):
    return packet[9] if packet[0] >> 4 == 4 else None


def _header_bytes(packet):
    """The sizes of the headers of IPv4, and of both protocols together."""
    outer = (packet[0] & 15) * 4
    return outer, outer + (8 if packet[9] == UDP else (packet[outer + 12] >> 4) * 4)


def payload_of(packet):
    return packet[_header_bytes(packet)[1]:]


def ports_of(packet):
    """The sender's and the receiver's."""
    return struct.unpack_from(">HH", packet, _header_bytes(packet)[0])


def _checksum(data):
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _with_checksum(packet):
    """The packet with the right checksum, so that its receiver's kernel takes it."""
    packet = bytearray(packet)
    outer, _ = _header_bytes(packet)
    place = outer + (6 if packet[9] == UDP else 16)
    packet[place:place + 2] = b"\0\0"
    pseudo_header = bytes(packet[12:20]) + struct.pack(">BBH", 0, packet[9], len(packet) - outer)
    packet[place:place + 2] = struct.pack(">H", _checksum(pseudo_header + bytes(packet[outer:])) or 0xFFFF)
    return bytes(packet)


def with_flipped_bit(packet, byte=-1):
    """The packet with another lowest bit in a byte of its payload."""
    payload = bytearray(payload_of(packet))
    payload[byte] ^= 1
    return _with_checksum(packet[:-len(payload)] + bytes(payload))


def with_ports(packet, ports):
    """The packet from and to other ports."""
    outer, _ = _header_bytes(packet)
    return _with_checksum(packet[:outer] + struct.pack(">HH", *ports) + packet[outer + 4:])
