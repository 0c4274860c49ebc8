#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// A number, a switch or a text.
using HyperparameterValue = std::variant<double, bool, std::string>;

struct Hyperparameter {
  std::string name;
  HyperparameterValue value;
};

/// A scalar that TensorBoard's HPARAMS tab shows as a column.
struct HyperparameterMetric {
  std::string tag;  ///< the scalar's
  /// Of the event files that hold it, below the session's own; empty: the same. TensorBoard finds another one
  /// only where its --logdir is a folder above the session's.
  std::string folder = "";
  std::string title = "";  ///< of the column; empty: the tag
};

/// One training as the HPARAMS tab shows it: a row.
struct HyperparameterSession {
  std::vector<Hyperparameter> values;
  std::vector<HyperparameterMetric> metrics;
  std::string group = "";  ///< sessions of one group are repetitions of each other; empty: a group of its own
};

enum class SessionStatus { kSuccess, kFailure };

}  // namespace lockstep
