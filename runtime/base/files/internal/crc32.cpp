#include "lockstep/runtime/base/files/internal/crc32.h"

#include <array>

namespace lockstep {
namespace {

constexpr size_t kSlices = 8;

/// tables[s][b]: what byte b does to the checksum when s more bytes follow.
constexpr std::array<std::array<uint32_t, 256>, kSlices> make_tables() {
  std::array<std::array<uint32_t, 256>, kSlices> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0xEDB88320U : 0);
    tables[0][byte] = value;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[slice - 1][byte];
      tables[slice][byte] = value >> 8 ^ tables[0][value & 0xFF];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

}  // namespace

uint32_t crc32(const void* bytes, size_t count, uint32_t previous) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  uint32_t value = ~previous;
  for (; count >= kSlices; count -= kSlices, next += kSlices) {
    uint32_t mixed = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t byte = next[i] ^ (i < 4 ? value >> (8 * i) & 0xFF : 0);
      mixed ^= kTables[kSlices - 1 - i][byte];
    }
    value = mixed;
  }
  for (; count > 0; --count, ++next) value = value >> 8 ^ kTables[0][(value ^ *next) & 0xFF];
  return ~value;
}

}  // namespace lockstep
