#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class SaveUnit { kEpochs, kSteps, kMinutes };

/// How often something is saved.
struct SaveInterval {
  SaveUnit unit = SaveUnit::kEpochs;
  double count = 1;  ///< Whole for epochs and steps.
  bool operator==(const SaveInterval&) const = default;

  static SaveInterval epochs(int64_t count) { return {SaveUnit::kEpochs, static_cast<double>(count)}; }
  static SaveInterval steps(int64_t count) { return {SaveUnit::kSteps, static_cast<double>(count)}; }
  static SaveInterval minutes(double count) { return {SaveUnit::kMinutes, count}; }

  /// Parses "epoch", "3 epochs", "100 steps" or "2.5 minutes", with or without the blank. Throws
  /// InvalidArgument for anything else, and if the count is not positive.
  static SaveInterval parse(const std::string& text);
  /// Returns text that parse() reads.
  std::string str() const;
};

}  // namespace lockstep
