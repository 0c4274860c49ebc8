#include "lockstep/strategies/nn/internal/distinct_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// A row number and its index in the input.
struct PlacedRow {
  uint64_t row;
  int64_t index;
};

/// Radix sort by row, least significant digit first, in as few and as short passes as the largest row needs.
/// A comparison sort takes several times as long for a batch with ten thousand rows of a table of millions.
std::vector<PlacedRow> sorted(std::span<const int64_t> rows) {
  constexpr int kMostBits = 12;  // so that the counts fit into the L1 cache
  std::vector<PlacedRow> placed(rows.size()), other(rows.size());
  uint64_t all_bits = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    placed[i] = {static_cast<uint64_t>(rows[i]), static_cast<int64_t>(i)};
    all_bits |= placed[i].row;
  }
  const int width = std::bit_width(all_bits);
  const int passes = (width + kMostBits - 1) / kMostBits;
  const int bits = passes == 0 ? 0 : (width + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  std::vector<size_t> begins;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * bits;
    begins.assign(mask + 2, 0);
    for (const auto& each : placed) ++begins[((each.row >> shift) & mask) + 1];
    for (size_t digit = 1; digit < begins.size(); ++digit) begins[digit] += begins[digit - 1];
    for (const auto& each : placed) other[begins[(each.row >> shift) & mask]++] = each;
    std::swap(placed, other);
  }
  return placed;
}

}  // namespace

TableRows distinct_rows(const at::Tensor& rows) {
  const auto numbers = rows.contiguous();
  const std::span<const int64_t> span(numbers.const_data_ptr<int64_t>(),
                                      static_cast<size_t>(numbers.numel()));
  TableRows found{.rows = at::empty({numbers.numel()}, numbers.options()),
                  .indices = at::empty_like(numbers)};
  auto* distinct = found.rows.mutable_data_ptr<int64_t>();
  auto* indices = found.indices.mutable_data_ptr<int64_t>();
  int64_t count = 0;
  for (const auto& [row, index] : sorted(span)) {
    if (count == 0 || distinct[count - 1] != static_cast<int64_t>(row))
      distinct[count++] = static_cast<int64_t>(row);
    indices[index] = count - 1;
  }
  found.rows.resize_({count});
  return found;
}

}  // namespace lockstep
