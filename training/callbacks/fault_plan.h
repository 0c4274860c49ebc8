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
  kThrow,  ///< the fit throws std::runtime_error
  kNan,    ///< the last element of the first parameter becomes NaN
  kUlp,    ///< that element becomes the next larger number
};

/// A fault that happens once, after a given step.
struct Fault {
  FaultKind kind = FaultKind::kKill;
  int place = 0;     ///< rank of a worker; for kNan and kUlp the id of a replica
  int64_t step = 0;  ///< counted over all epochs, from 1
  bool operator==(const Fault&) const = default;
};

/// Parses a list of faults such as "kill@rank1:step20,ulp@replica3:step7". kill, stop, term, int and throw
/// happen to a worker process; nan and ulp change the first parameter of a replica. Throws InvalidArgument
/// naming a fault that cannot be parsed.
std::vector<Fault> parse_faults(const std::string& text);

}  // namespace lockstep
