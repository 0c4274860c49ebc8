#include "lockstep/runtime/workers/straggler_detector.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Least size of an observation window: the number of collectives, and the slowest worker's time.
constexpr int64_t kMinCollectives = 50;
constexpr int64_t kMinMicroseconds = 2'000'000;
constexpr double kTimes = 2;

}  // namespace

std::optional<StragglerDetector::Straggler> StragglerDetector::add(
    const std::vector<std::chrono::microseconds>& busy, int num_collectives) {
  if (has_told_ || busy.size() < 2) return std::nullopt;
  totals_.resize(busy.size());
  for (size_t worker = 0; worker < busy.size(); ++worker) totals_[worker] += busy[worker].count();
  count_ += num_collectives;
  const auto slowest = std::max_element(totals_.begin(), totals_.end());
  if (count_ < kMinCollectives || *slowest < kMinMicroseconds) return std::nullopt;

  std::vector<int64_t> others(totals_.begin(), slowest);
  others.insert(others.end(), slowest + 1, totals_.end());
  const auto middle = others.begin() + static_cast<int64_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  const double times = static_cast<double>(*slowest) / static_cast<double>(std::max<int64_t>(*middle, 1));
  const Straggler straggler{static_cast<int>(slowest - totals_.begin()), times};
  // Old times say nothing about now.
  std::fill(totals_.begin(), totals_.end(), 0);
  count_ = 0;
  const auto before =
      std::exchange(suspect_, times > kTimes ? std::optional(straggler.worker) : std::nullopt);
  // One long pause can make only one window look bad.
  if (!suspect_ || before != suspect_) return std::nullopt;
  has_told_ = true;
  return straggler;
}

}  // namespace lockstep
