#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

inline constexpr int64_t kDigitSize = 28;

/// kDigitSize rows of kDigitSize grey values, ink bright on dark as in MNIST.
using DigitImage = std::array<uint8_t, kDigitSize * kDigitSize>;

/// Draws a digit 0 ... 9 as strokes of a pen, with random slant, size, place, bend, thickness, ink and noise.
/// The image depends on nothing but the digit, the seed and the index.
DigitImage draw_digit(int64_t digit, uint64_t seed, uint64_t index);

}  // namespace lockstep
