#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

inline constexpr int64_t kDigitSize = 28;

/// kDigitSize rows of kDigitSize grey values; bright ink on a dark background, as in MNIST.
using DigitImage = std::array<uint8_t, kDigitSize * kDigitSize>;

/// Draws a digit 0 ... 9 as pen strokes with random slant, size, position, bend, thickness, ink and noise.
/// The image depends only on the digit, the seed and the index.
DigitImage draw_digit(int64_t digit, uint64_t seed, uint64_t index);

}  // namespace lockstep
