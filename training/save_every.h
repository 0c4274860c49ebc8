#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class SaveUnit { kEpochs, kSteps, kMinutes };

/// How often something is saved.
struct SaveEvery {
  SaveUnit unit = SaveUnit::kEpochs;
  double count = 1;  ///< whole for epochs and steps
  bool operator==(const SaveEvery&) const = default;

  static SaveEvery epochs(int64_t count) { return {SaveUnit::kEpochs, static_cast<double>(count)}; }
  static SaveEvery steps(int64_t count) { return {SaveUnit::kSteps, static_cast<double>(count)}; }
  static SaveEvery minutes(double count) { return {SaveUnit::kMinutes, count}; }

  /// "epoch", "3 epochs", "100 steps" or "2.5 minutes", with or without the blank. Throws InvalidArgument for
  /// anything else, and for a count that is not positive.
  static SaveEvery parse(const std::string& text);
  /// As parse() reads it.
  std::string str() const;
};

}  // namespace lockstep
