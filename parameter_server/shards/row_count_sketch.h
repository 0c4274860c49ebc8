#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// Counts how often row numbers occur, in memory of fixed size: a count-min sketch (Cormode and
/// Muthukrishnan, 2005) with conservative update (Estan and Varghese, 2002). A count is never too low, and
/// too high only if the row shares all of its counters with others. Not thread-safe.
class RowCountSketch {
 public:
  static constexpr int64_t kMaxCount = 32767;
  static constexpr int64_t kDepth = 4;  ///< counters of a row

  /// Takes at most `max_bytes` and 256 MiB, or the memory of 64 counters for each of a row's.
  explicit RowCountSketch(int64_t max_bytes);

  /// Counts the row once more, up to kMaxCount, and returns its count.
  int64_t add(int64_t row);
  int64_t count(int64_t row) const;
  /// Halves all counts, as in TinyLFU (Einziger, Friedman and Manes, 2017), so that old occurrences count
  /// less.
  void halve();

  int64_t bytes() const { return counters_.numel() * 2; }
  /// Returns the internal counters [kDepth, width], int16, to save.
  const at::Tensor& counters() const { return counters_; }
  /// Takes over counters of any sketch. If the widths differ, counts may become higher, but none lower.
  /// Throws InvalidArgument if no sketch has such counters.
  void restore(const at::Tensor& counters);
  /// Throws InvalidArgument if no sketch has such counters.
  static void check(const at::Tensor& counters);
  /// Returns the counters of a sketch of `width`, in which no row has a lower count than in `counters`.
  static at::Tensor resized(const at::Tensor& counters, int64_t width);

 private:
  at::Tensor counters_;
};

}  // namespace lockstep
