#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// CRC-32C of `bytes`: Castagnoli's polynomial 0x1EDC6F41, bits reflected, as RFC 3720 defines it.
uint32_t crc32c(std::span<const uint8_t> bytes);

/// The checksum as TFRecord files hold it: turned right by 15 bits, plus a constant, so that the checksum of
/// data which itself holds checksums is still a good one.
uint32_t masked_crc32c(std::span<const uint8_t> bytes);

}  // namespace lockstep
