#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/markdown_table.h"

namespace lockstep::benchmarks {

/// The results as two Markdown tables: ratios, and seconds to the first step.
class Report {
 public:
  Report();

  /// `seconds.first` is the other program's, `seconds.second` Lockstep's, for `images` images each: the ratio
  /// is Lockstep's speed over the other's.
  void add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                 double images, std::optional<Bar> bar);
  /// `bytes.first` is Lockstep's, `bytes.second` the other's.
  void add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                  std::optional<Bar> bar);
  void add_start(const std::string& program, const std::vector<double>& seconds);

  friend std::ostream& operator<<(std::ostream& stream, const Report& report);

 private:
  void add_ratio(const std::string& lockstep, const std::string& other, const std::string& own_median,
                 const std::string& other_median, const std::vector<double>& ratios, std::optional<Bar> bar);

  MarkdownTable ratios_;
  MarkdownTable starts_;
};

}  // namespace lockstep::benchmarks
