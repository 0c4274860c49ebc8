#pragma once

#include <array>
#include <charconv>
#include <string>

namespace lockstep {

/// Returns the shortest text that is read as the same number.
inline std::string shortest_text(double value) {
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), result.ptr};
}

}  // namespace lockstep
