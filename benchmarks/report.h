#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/statistics.h"

namespace lockstep::benchmarks {

/// The results as two Markdown tables, ratios and seconds to the first step, or as JSON.
class Report {
 public:
  /// `seconds.first` is the other program's, `seconds.second` Lockstep's, for `images` images each: the ratio
  /// is Lockstep's speed over the other's.
  void add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                 double images, std::optional<Bar> bar);
  /// `bytes.first` is Lockstep's, `bytes.second` the other's.
  void add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                  std::optional<Bar> bar);
  void add_start(const std::string& program, const std::vector<double>& seconds);

  /// {"ratios": [...], "starts": [...]}, one object a row, with numbers where the tables have text.
  std::string json() const;
  friend std::ostream& operator<<(std::ostream& stream, const Report& report);

 private:
  struct Ratio {
    std::string lockstep;
    std::string other;
    std::string unit;
    double own_median = 0;
    double other_median = 0;
    MedianInterval ratio;
    std::optional<Bar> bar;
  };
  struct Start {
    std::string program;
    double median = 0;
    double least = 0;
    double most = 0;
    size_t count = 0;
  };

  std::vector<Ratio> ratios_;
  std::vector<Start> starts_;
};

}  // namespace lockstep::benchmarks
