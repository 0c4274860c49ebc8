#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

/// The order of the examples in one epoch.
///
/// Example:
///
///     struct Backwards : ExampleOrder {
///       std::vector<size_t> indices(const Range& places) const override {
///         std::vector<size_t> indices;
///         for (size_t place = places.begin; place < places.end; ++place)
///           indices.push_back(size - 1 - place);
///         return indices;
///       }
///       size_t size = 0;
///     };
class ExampleOrder {
 public:
  virtual ~ExampleOrder() = default;

  /// Places of the order.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  /// Returns the indices of the examples at places `begin` to `end` - 1. `end` is at most the number of
  /// examples. Thread-safe.
  virtual std::vector<size_t> indices(const Range& places) const = 0;
};

}  // namespace lockstep
