#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// A usual mistake that still runs, but gives results or a speed that nobody wants.
enum class UsageMistake : uint8_t { kMeanLoss, kNoGradients, kTrainingMode, kSameOrder, kCount };

/// Warns of mistakes by TORCH_WARN, of each at most once. Thread-safe.
///
/// LOCKSTEP_WARNINGS=off in the environment silences all of them. A program that handles LibTorch's warnings
/// (c10::WarningUtils) gets them there.
class UsageWarnings {
 public:
  /// Messages begin with [`strategy`]. Throws InvalidArgument if LOCKSTEP_WARNINGS is neither `on` nor `off`.
  explicit UsageWarnings(std::string strategy, const Environment& environment = process_environment());

  /// Returns whether warn() would still do something, so that a check that costs time can be left out.
  bool wants(UsageMistake mistake) const { return !was_handled_[static_cast<size_t>(mistake)]; }
  /// `text` says what is wrong and what to write instead.
  void warn(UsageMistake mistake, const std::string& text);

 private:
  const std::string strategy_;
  std::array<std::atomic<bool>, static_cast<size_t>(UsageMistake::kCount)> was_handled_{};
};

}  // namespace lockstep
