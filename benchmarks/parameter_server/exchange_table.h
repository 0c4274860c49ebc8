#pragma once

#include <ostream>
#include <string>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {

/// A row of the table, without its results.
struct ExchangeRow {
  std::string exchange;
  int servers = 0;
  double bytes = 0;         ///< there and back
  std::string tensor_pipe;  ///< the way that its bytes take
};

/// Lockstep's exchanges with parameter servers compared with TensorPipe's, as Markdown.
class ExchangeTable {
 public:
  ExchangeTable();

  /// `seconds.first` is TensorPipe's, `seconds.second` Lockstep's: the ratio is Lockstep's speed over the
  /// other's.
  void add(const ExchangeRow& row, const AlternatingPairs& seconds);
  friend std::ostream& operator<<(std::ostream& stream, const ExchangeTable& table);

 private:
  measurement::MarkdownTable table_;
};

}  // namespace lockstep::benchmarks
