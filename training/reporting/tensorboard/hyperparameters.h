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
  std::string tag;  ///< tag of the scalar
  /// Folder of the event files that hold the scalar, relative to the session's own; empty: the same folder.
  /// TensorBoard finds a folder below the session's if its --logdir is above both, and never one next to it.
  std::string folder = "";
  std::string title = "";  ///< title of the column; empty: the tag
};

/// One training run: a row of the HPARAMS tab.
struct HyperparameterSession {
  std::vector<Hyperparameter> values;
  std::vector<HyperparameterMetric> metrics;
  /// Sessions of one group are repetitions of each other; empty: a group of its own.
  std::string group = "";
};

enum class SessionStatus { kSuccess, kFailure };

}  // namespace lockstep
