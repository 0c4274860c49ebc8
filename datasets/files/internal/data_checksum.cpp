#include "lockstep/datasets/files/internal/data_checksum.h"

#include <zlib.h>

#include <array>
#include <cstdio>

namespace lockstep {

void DataChecksum::add(const void* bytes, size_t size) {
  value_ = static_cast<uint32_t>(crc32_z(value_, static_cast<const Bytef*>(bytes), size));
}

void DataChecksum::add(std::string_view text) {
  const uint64_t size = text.size();
  add(&size, sizeof size);
  add(text.data(), text.size());
}

std::string DataChecksum::text() const {
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", value_);
  return digits.data();
}

}  // namespace lockstep
