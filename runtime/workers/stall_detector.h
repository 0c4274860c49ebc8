#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A worker's position in the collectives of one channel.
struct CollectivePosition {
  int channel = 0;                   ///< the channel's number, the same on all workers
  std::string op{};                  ///< the channel's op; not unique
  uint64_t sequence = 0;             ///< of the collective it waits in, or of the next one
  std::string description{};         ///< of the collective it waits in; empty if it waits in none
  std::chrono::milliseconds time{};  ///< since it entered the collective, or since its last one ended
  std::optional<int> peer{};         ///< the only other worker that takes part; none: `members` do
  std::vector<int> members{};        ///< the workers that take part; empty: all do

  bool concerns(int worker) const {
    if (peer) return *peer == worker;
    return members.empty() || std::find(members.begin(), members.end(), worker) != members.end();
  }
};

/// Watches for collectives that do not end. Reports which workers wait for which, and ends collectives that
/// can never finish because another worker has reached the end of its program without them. Each worker has
/// one, with its own thread that polls the workers' store about twice a second.
class StallDetector {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    /// Of the job. Its calls should not wait long for an answer, since the destructor waits for them.
    c10::intrusive_ptr<c10d::Store> store;
    std::function<std::string(int worker)> name_of;
    /// Returns the positions in all channels; called in the thread.
    std::function<std::vector<CollectivePosition>()> positions;
    /// Receives a report, in the thread of the lowest-ranked worker that waits, and again each time it has
    /// waited twice as long.
    std::function<void(const std::string&)> log;
    /// Receives a CollectiveMismatch if another worker has ended without the collective; called in the
    /// thread.
    std::function<void(const std::exception_ptr&)> fail;
    std::chrono::milliseconds report_after{std::chrono::seconds(30)};
    std::chrono::milliseconds period{500};
  };

  explicit StallDetector(Options options);
  /// Blocks until a running function of the options or a call of the store returns.
  ~StallDetector();
  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  /// Tells the others that this worker calls no more collectives, and how many it has completed in each
  /// channel, indexed by the channel's number. Throws what the store throws.
  static void tell_end(c10d::Store& store, int rank, const std::vector<uint64_t>& completed);

 private:
  class Watch;
  const std::unique_ptr<Watch> watch_;
};

/// Returns the report of which workers wait for which in the collective of `own`. `positions` has one entry
/// per worker, nullopt if it did not answer.
std::string stall_report(const CollectivePosition& own,
                         const std::vector<std::optional<CollectivePosition>>& positions,
                         const std::function<std::string(int)>& name_of);

}  // namespace lockstep
