#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class FaultKind {
  kKill,   ///< SIGKILL
  kStop,   ///< SIGSTOP
  kTerm,   ///< SIGTERM
  kInt,    ///< SIGINT
  kThrow,  ///< std::runtime_error out of the fit
  kNan,    ///< the last element of a parameter becomes NaN
  kUlp,    ///< it becomes the next number above it
};

/// A fault that is to happen once, after a step.
struct Fault {
  FaultKind kind = FaultKind::kKill;
  int place = 0;     ///< a worker's rank; for kNan and kUlp a replica's id
  int64_t step = 0;  ///< of all epochs, from 1
  bool operator==(const Fault&) const = default;
};

/// Reads "kill@rank1:step20,ulp@replica3:step7": kill, stop, term, int and throw happen to a worker process,
/// nan and ulp to a replica's first parameter. Throws InvalidArgument naming the fault that cannot be read.
std::vector<Fault> parse_faults(const std::string& text);

}  // namespace lockstep
