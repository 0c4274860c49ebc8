#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// The checksum that zip archives hold of their records (CRC-32 of ISO 3309, polynomial 0xEDB88320
/// reflected). `previous` is that of the bytes before these.
uint32_t crc32(const void* bytes, size_t count, uint32_t previous = 0);

}  // namespace lockstep
