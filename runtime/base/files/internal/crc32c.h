#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// Returns the CRC-32C of `bytes`: Castagnoli's polynomial 0x1EDC6F41, bits reflected, as defined in RFC
/// 3720.
uint32_t crc32c(std::span<const uint8_t> bytes);

/// Returns the checksum as stored in TFRecord files: rotated right by 15 bits, plus a constant, so that it
/// also works for data that contains checksums.
uint32_t masked_crc32c(std::span<const uint8_t> bytes);

}  // namespace lockstep
