#include "lockstep/apps/inspect_data/number_bins.h"

#include <algorithm>
#include <cmath>

namespace lockstep::apps {
namespace {

constexpr int64_t kMostBins = 64;
/// Numbers of bins stay below 2^42, and thus exact.
constexpr int kBitsOfBins = 42;
/// No number is finer than the least power of two.
constexpr int kLeastExponent = -1074;

int64_t bin_of(double number, int exponent) {
  return static_cast<int64_t>(std::floor(std::ldexp(number, -exponent)));
}

int64_t half_rounded_down(int64_t bin) {
  return bin >> 1;
}

}  // namespace

double NumberBins::low(size_t bin) const {
  return std::ldexp(static_cast<double>(first_ + static_cast<int64_t>(bin)), exponent_);
}

double NumberBins::width() const {
  return std::ldexp(1.0, exponent_);
}

/// Returns the least exponent that is large enough for numbers from `least` to `most`. It never falls when
/// the range grows, so that the order of numbers does not matter.
int NumberBins::exponent_for(double least, double most) const {
  const double largest = std::max(std::fabs(least), std::fabs(most));
  int exponent = is_whole_ ? 0 : kLeastExponent;
  if (largest > 0) exponent = std::max(exponent, std::ilogb(largest) - kBitsOfBins + 2);
  while (bin_of(most, exponent) - bin_of(least, exponent) >= kMostBins) ++exponent;
  return exponent;
}

/// Joins bins until they are as wide as the exponent says.
void NumberBins::widen(int exponent) {
  for (; exponent_ < exponent; ++exponent_) {
    std::vector<int64_t> joined;
    const int64_t first = half_rounded_down(first_);
    for (size_t i = 0; i < counts_.size(); ++i) {
      const auto place = static_cast<size_t>(half_rounded_down(first_ + static_cast<int64_t>(i)) - first);
      joined.resize(std::max(joined.size(), place + 1));
      joined[place] += counts_[i];
    }
    first_ = first;
    counts_ = std::move(joined);
  }
}

/// Adds empty bins for numbers of bins that are not there yet.
void NumberBins::include(int64_t first, int64_t last) {
  if (counts_.empty()) first_ = first;
  if (first < first_) {
    counts_.insert(counts_.begin(), static_cast<size_t>(first_ - first), 0);
    first_ = first;
  }
  counts_.resize(std::max(counts_.size(), static_cast<size_t>(last - first_ + 1)));
}

void NumberBins::add(std::span<const double> numbers) {
  if (numbers.empty()) return;
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  NumberBins added(is_whole_);
  added.exponent_ = exponent_for(*least, *most);
  added.include(bin_of(*least, added.exponent_), bin_of(*most, added.exponent_));
  const double scale = std::ldexp(1.0, -std::max(added.exponent_, -1000));
  const bool is_scalable = added.exponent_ >= -1000 && added.exponent_ <= 1000;
  for (const double number : numbers) {
    // Multiplying by a power of two is exact.
    const int64_t bin =
        is_scalable ? static_cast<int64_t>(std::floor(number * scale)) : bin_of(number, added.exponent_);
    ++added.counts_[static_cast<size_t>(bin - added.first_)];
  }
  merge(added);
}

void NumberBins::merge(const NumberBins& other) {
  if (other.is_empty()) return;
  if (is_empty()) {
    exponent_ = other.exponent_;
    first_ = other.first_;
    counts_ = other.counts_;
    return;
  }
  NumberBins added = other;
  widen(added.exponent_);
  added.widen(exponent_);
  const auto last_of = [](const NumberBins& bins) {
    return bins.first_ + static_cast<int64_t>(bins.counts_.size()) - 1;
  };
  while (std::max(last_of(*this), last_of(added)) - std::min(first_, added.first_) >= kMostBins) {
    widen(exponent_ + 1);
    added.widen(exponent_);
  }
  include(added.first_, last_of(added));
  for (size_t i = 0; i < added.counts_.size(); ++i)
    counts_[static_cast<size_t>(added.first_ - first_) + i] += added.counts_[i];
}

}  // namespace lockstep::apps
