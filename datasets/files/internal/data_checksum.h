#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// CRC-32 of the data added so far, as in zip files. It tells data sets of different workers apart.
class DataChecksum {
 public:
  void add(const void* bytes, size_t size);
  /// Also adds the text's length, so that "ab" and "c" differ from "a" and "bc".
  void add(std::string_view text);
  /// Returns 8 hexadecimal digits.
  std::string text() const;

 private:
  uint32_t value_ = 0;
};

}  // namespace lockstep
