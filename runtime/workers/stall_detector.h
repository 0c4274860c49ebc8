#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Where a worker is in the collectives of one channel.
struct CollectivePosition {
  int channel = 0;                   ///< its number, the same on all workers
  std::string op{};                  ///< the channel's, which others may have, too
  uint64_t sequence = 0;             ///< of the collective that it waits in, or of the next one
  std::string description{};         ///< of the one that it waits in; empty: it waits in none
  std::chrono::milliseconds time{};  ///< since it came there, or since its last one ended
};

/// Looks after collectives that do not end: says who waits for whom, and ends those that never will, since
/// another worker has come to the end of its program without them. Each worker has one, with a thread of its
/// own that asks the workers' store about twice a second.
class StallDetector {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    c10::intrusive_ptr<c10d::Store> store;  ///< a client that nobody else waits with
    std::function<std::string(int worker)> name_of;
    std::function<std::vector<CollectivePosition>()> places;  ///< of all channels; called in the thread
    /// Gets a report, in the thread of the worker of the lowest rank that waits; then again each time that it
    /// has waited twice as long.
    std::function<void(const std::string&)> say;
    /// Gets a CollectiveMismatch where another worker has ended; called in the thread.
    std::function<void(const std::exception_ptr&)> fail;
    std::chrono::milliseconds report_after{std::chrono::seconds(30)};
    std::chrono::milliseconds period{500};
  };

  explicit StallDetector(Options options);
  /// No function of the options is called any more. Blocks for one that is being called.
  ~StallDetector();
  StallDetector(const StallDetector&) = delete;
  StallDetector& operator=(const StallDetector&) = delete;

  /// Tells the others that this worker calls no collective any more, and how many it has come through in each
  /// channel, by their numbers. Throws what the store throws.
  static void tell_end(c10d::Store& store, int rank, const std::vector<uint64_t>& completed);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The report of who waits in `own` for whom. `places` are each worker's, none: it has not answered.
std::string stall_report(const CollectivePosition& own,
                         const std::vector<std::optional<CollectivePosition>>& places,
                         const std::function<std::string(int)>& name_of);

}  // namespace lockstep
