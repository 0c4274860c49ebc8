#include "lockstep/runtime/base/files/internal/crc32c.h"

#include <array>

namespace lockstep {
namespace {

/// The contribution of each value of a byte to the remainder.
constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kReflectedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kReflectedPolynomial : 0);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

}  // namespace

uint32_t crc32c(std::span<const uint8_t> bytes) {
  uint32_t remainder = 0xFFFFFFFF;
  for (const uint8_t byte : bytes) remainder = (remainder >> 8) ^ kCrcTable[(remainder ^ byte) & 0xFF];
  return ~remainder;
}

uint32_t masked_crc32c(std::span<const uint8_t> bytes) {
  constexpr uint32_t kMask = 0xA282EAD8;
  const uint32_t checksum = crc32c(bytes);
  return ((checksum >> 15) | (checksum << 17)) + kMask;
}

}  // namespace lockstep
