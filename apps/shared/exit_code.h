#pragma once

namespace lockstep::apps {

/// Exit codes of the programs. An error without a code of its own gives 1.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,  ///< usage or cluster configuration
  kData = 3,
  kCheckpoint = 4,
  kPeer = 5,     ///< peer or cluster
  kNumbers = 6,  ///< NaN, or replicas that drifted apart
  kResources = 7,
  kInterrupted = 130,
  kTerminated = 143,
};

}  // namespace lockstep::apps
