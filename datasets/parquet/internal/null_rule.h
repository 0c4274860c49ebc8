#pragma once

#include <optional>

namespace lockstep {

/// The values that stand for the nulls of a column.
struct NullRule {
  std::optional<double> fill{};  ///< unset: null numbers are refused
  bool lists_are_empty = false;  ///< false: null lists, strings and binaries are refused
};

}  // namespace lockstep
