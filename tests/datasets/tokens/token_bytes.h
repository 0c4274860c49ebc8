#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Numbers as they are in memory, one after another.
template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// A header as llm.c's programs write it, with any numbers at its beginning.
inline std::string llm_c_header(const std::vector<int32_t>& beginning) {
  std::vector<int32_t> header(256);
  for (size_t i = 0; i < beginning.size(); ++i) header[i] = beginning[i];
  return bytes_of(header);
}

}  // namespace lockstep::testing
