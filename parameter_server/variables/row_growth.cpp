#include "lockstep/parameter_server/variables/row_growth.h"

#include <bit>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr uint64_t kFirstFactor = 0xbf58476d1ce4e5b9ULL;
constexpr uint64_t kSecondFactor = 0x94d049bb133111ebULL;

/// Inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the number of right bits.
constexpr uint64_t inverse_of(uint64_t odd) {
  uint64_t inverse = odd;  // right in 3 bits
  for (int i = 0; i < 5; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}
static_assert(kFirstFactor * inverse_of(kFirstFactor) == 1 && kSecondFactor * inverse_of(kSecondFactor) == 1);

/// Its own inverse, because the shift is at least half of the bits.
constexpr uint64_t folded(uint64_t bits, int num_bits) {
  return bits ^ (bits >> ((num_bits + 1) / 2));
}

constexpr uint64_t mask_of(int num_bits) {
  return (uint64_t{1} << num_bits) - 1;
}

}  // namespace

int row_bits_of(int64_t num_columns) {
  constexpr int64_t kMostColumns = int64_t{1} << 24;
  if (num_columns < 1 || num_columns > kMostColumns)
    throw InvalidArgument("[row_bits_of] expected 1 to " + std::to_string(kMostColumns) +
                          " columns, but got " + std::to_string(num_columns));
  constexpr int kBitsOfBytes = 62 - 3;  // a float64 has 2^3
  return kBitsOfBytes - static_cast<int>(std::bit_width(static_cast<uint64_t>(num_columns - 1)));
}

int64_t scattered_row(int64_t id, int num_bits) {
  const uint64_t mask = mask_of(num_bits);
  uint64_t bits = folded(static_cast<uint64_t>(id) & mask, num_bits) * kFirstFactor & mask;
  bits = folded(bits, num_bits) * kSecondFactor & mask;
  return static_cast<int64_t>(folded(bits, num_bits));
}

int64_t id_of_scattered_row(int64_t row, int num_bits) {
  const uint64_t mask = mask_of(num_bits);
  uint64_t bits = folded(static_cast<uint64_t>(row) & mask, num_bits) * inverse_of(kSecondFactor) & mask;
  bits = folded(bits, num_bits) * inverse_of(kFirstFactor) & mask;
  return static_cast<int64_t>(folded(bits, num_bits));
}

}  // namespace lockstep
