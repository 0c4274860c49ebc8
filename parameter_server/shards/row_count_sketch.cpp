#include "lockstep/parameter_server/shards/row_count_sketch.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <bit>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr int64_t kLeastWidth = 64;
constexpr int64_t kMostWidth = int64_t{1} << 25;

/// The row's counters, as indices into all of them: each has bits of its own of a hash, by SplitMix's
/// finalizer.
std::array<int64_t, RowCountSketch::kDepth> counters_of(int64_t row, int64_t width) {
  std::array<int64_t, RowCountSketch::kDepth> indices{};
  for (int64_t i = 0; i < RowCountSketch::kDepth; ++i) {
    auto hash = static_cast<uint64_t>(row) + static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
    hash ^= hash >> 31;
    indices[static_cast<size_t>(i)] =
        i * width + static_cast<int64_t>(hash & static_cast<uint64_t>(width - 1));
  }
  return indices;
}

}  // namespace

RowCountSketch::RowCountSketch(int64_t max_bytes) {
  const auto most = static_cast<uint64_t>(std::max<int64_t>(max_bytes, 0) / (kDepth * 2));
  const auto width = std::clamp(static_cast<int64_t>(std::bit_floor(most)), kLeastWidth, kMostWidth);
  counters_ = at::zeros({kDepth, width}, at::kShort);
}

int64_t RowCountSketch::count(int64_t row) const {
  const auto* counters = counters_.const_data_ptr<int16_t>();
  int64_t least = kMaxCount;
  for (const int64_t i : counters_of(row, counters_.size(1))) least = std::min<int64_t>(least, counters[i]);
  return least;
}

int64_t RowCountSketch::add(int64_t row) {
  auto* counters = counters_.data_ptr<int16_t>();
  const auto indices = counters_of(row, counters_.size(1));
  const auto count = static_cast<int16_t>(std::min(this->count(row) + 1, kMaxCount));
  for (const int64_t i : indices) counters[i] = std::max(counters[i], count);
  return count;
}

void RowCountSketch::halve() {
  auto* counters = counters_.data_ptr<int16_t>();
  for (int64_t i = 0; i < counters_.numel(); ++i) counters[i] = static_cast<int16_t>(counters[i] / 2);
}

void RowCountSketch::check(const at::Tensor& counters) {
  if (!counters.defined() || counters.scalar_type() != at::kShort || counters.dim() != 2 ||
      counters.size(0) != kDepth || counters.size(1) < kLeastWidth || counters.size(1) > kMostWidth ||
      !std::has_single_bit(static_cast<uint64_t>(counters.size(1))))
    throw InvalidArgument(c10::str(
        "row_counts: expected int16 of shape [", kDepth, ", a power of two], but got ",
        counters.defined() ? c10::str(counters.scalar_type(), " of shape ", counters.sizes()) : "none"));
}

at::Tensor RowCountSketch::resized(const at::Tensor& counters, int64_t width) {
  check(counters);
  const int64_t given = counters.size(1);
  // An index of a smaller sketch is that of a larger one modulo its width.
  if (given > width) return std::get<0>(counters.view({kDepth, given / width, width}).max(1));
  return counters.repeat({1, width / given});
}

void RowCountSketch::restore(const at::Tensor& counters) {
  counters_.copy_(resized(counters.contiguous(), counters_.size(1)));
}

}  // namespace lockstep
