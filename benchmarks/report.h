#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/device_use.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::benchmarks {

/// The cross-device op that the others are compared with.
inline constexpr const char* kReferenceOp = "hierarchical_copy";

/// A row of the table of cross-device ops, for any op.
struct OpRow {
  std::string replicas;
  std::string tensors;
  int64_t bytes = 0;  ///< of all tensors, on each replica
};

/// The work that a program has done in the time that was measured.
struct WorkDone {
  double count = 0;
  std::string unit;  ///< of the speed, such as images/s
};

/// The results as Markdown tables (ratios, cross-device ops, profiles, seconds to the first step) and a list
/// of what was not measured, or as JSON.
class Report {
 public:
  /// `seconds.first` is the other program's, `seconds.second` Lockstep's, for the same work each: the ratio
  /// is Lockstep's speed over the other's.
  void add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                 const WorkDone& work, std::optional<Bar> bar);
  /// `bytes.first` is Lockstep's, `bytes.second` the other's.
  void add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                  std::optional<Bar> bar);
  void add_start(const std::string& program, const std::vector<double>& seconds);

  /// The seconds of one sum of the row's tensors by kReferenceOp.
  void add_reference_op(const OpRow& row, const std::vector<double>& seconds);
  /// `seconds.first` is kReferenceOp's, `seconds.second` this op's: the ratio is this op's speed over the
  /// other's.
  void add_op(const std::string& op, const OpRow& row, const AlternatingPairs& seconds);
  /// One row for all tensors, which says why there are no others.
  void add_unmeasured_op(const std::string& op, const std::string& replicas, const std::string& reason);

  void add_profile(const std::string& program, int steps, const DeviceUse& use);
  /// A part of the benchmark that was wanted and left out.
  void add_not_measured(const std::string& part, const std::string& reason);

  /// {"ratios": [...], "ops": [...], "profiles": [...], "starts": [...], "not_measured": [...]}, one object a
  /// row, with numbers where the tables have text. A row with a ratio also has those of all its pairs, in the
  /// order in which they were measured.
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
    std::vector<double> pair_ratios;
  };
  struct Op {
    std::string name;
    OpRow row;
    double seconds = 0;
    std::optional<MedianInterval> ratio;  // none: the reference itself
    std::vector<double> pair_ratios;
    std::string not_measured;  // why, where nothing else is there
  };
  struct Profile {
    std::string program;
    int steps = 0;
    DeviceUse use;
  };
  struct Start {
    std::string program;
    double median = 0;
    double least = 0;
    double most = 0;
    size_t count = 0;
  };
  struct NotMeasured {
    std::string part;
    std::string reason;
  };

  std::vector<Ratio> ratios_;
  std::vector<Op> ops_;
  std::vector<Profile> profiles_;
  std::vector<Start> starts_;
  std::vector<NotMeasured> not_measured_;
};

}  // namespace lockstep::benchmarks
