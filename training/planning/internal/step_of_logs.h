#pragma once

#include <cstdint>

#include "lockstep/training/planning/internal/step_log.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Quantities for any number of examples, from their values for two numbers.
class BatchLine {
 public:
  BatchLine(int64_t fewer_examples, int64_t more_examples) : fewer_(fewer_examples), more_(more_examples) {}
  int64_t fewer() const { return fewer_; }
  int64_t more() const { return more_; }

  BatchQuantity through(double of_fewer, double of_more) const {
    const double slope = (of_more - of_fewer) / static_cast<double>(more_ - fewer_);
    return {of_fewer - slope * static_cast<double>(fewer_), slope};
  }
  BatchQuantity through(int64_t of_fewer, int64_t of_more) const {
    return through(static_cast<double>(of_fewer), static_cast<double>(of_more));
  }

 private:
  int64_t fewer_, more_;
};

/// Makes a record of the logs of two steps with different numbers of examples: their blocks, calls, events,
/// allocations and operators. Throws InvalidArgument if they did not do the same.
RecordedStep step_of_logs(const BatchLine& line, StepLog& fewer, StepLog& more);

}  // namespace lockstep
