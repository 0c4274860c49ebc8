#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/exchange/exchange_link.h"
#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep {

struct MessageRound;

/// An exchange with another rank failed. The message names neither; see `peer`.
class ExchangeError : public std::runtime_error {
 public:
  enum class Kind {
    kClosed,       ///< the peer has closed the link, or its process has ended
    kTimeout,      ///< the peer did not send or receive in time
    kBadMessage,   ///< the peer sent bytes that are not a message of this channel
    kMismatch,     ///< the peer called another collective
    kInterrupted,  ///< this process called interrupt()
  };

  ExchangeError(Kind of, int with, const std::string& why) : std::runtime_error(why), kind(of), peer(with) {}

  Kind kind;
  int peer;  ///< -1 if several, or none
};

/// How values are added, or otherwise reduced: combines `count` elements of `from`, which need not be
/// aligned, into those of `into`.
using CombineFunction = void (*)(uint8_t* into, const uint8_t* from, size_t count);

/// A collective for ExchangeEngine::run().
struct ExchangeCall {
  std::string description;  ///< the same on all ranks: operation, dtype, shape
  uint64_t sequence = 0;    ///< the collective's number in the channel
  const ExchangePlan* plan = nullptr;
  /// The memory of each of the plan's blocks, including those for scratch. Blocks may be empty.
  std::vector<std::span<uint8_t>> blocks{};
  CombineFunction combine = nullptr;  ///< may be null if the plan adds nothing
  size_t element_bytes = 1;
};

/// Carries out plans over links to the other ranks, in the calling thread. A link is opened when a plan first
/// needs it.
///
/// Every message tells which call it belongs to, and nothing of its payload is used before that has been
/// compared. A rank that has finished an all-reduce therefore knows that all ranks made the same call.
///
/// Use it from one thread, except for interrupt() and counters(). After an error it cannot be used again.
class ExchangeEngine {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    int rank = 0;
    int size = 1;
    uint64_t generation = 0;  ///< the same on all ranks, another one for each channel and start of the job
    /// Opens the link to a rank, and may block until that rank opens it, too. Throws std::system_error,
    /// timed_out at the deadline.
    std::function<std::unique_ptr<ExchangeLink>(int peer, Clock::time_point deadline)> connect;
  };
  /// Counts since the engine was made.
  struct Counters {
    uint64_t messages_sent = 0;
    uint64_t bytes_sent = 0;  ///< with headers
  };

  explicit ExchangeEngine(Options options);
  ~ExchangeEngine();
  ExchangeEngine(const ExchangeEngine&) = delete;
  ExchangeEngine& operator=(const ExchangeEngine&) = delete;

  /// Carries out the plan, and blocks until it is done. Afterwards, all this rank's values have been handed
  /// to the system. Throws ExchangeError.
  void run(const ExchangeCall& call, Clock::time_point deadline);

  /// Ends run(), now and in future, with ExchangeError, and closes all links, so that the other ranks notice.
  /// Does not block or throw.
  void interrupt() noexcept;

  Counters counters() const;

 private:
  ExchangeLink& link_to(int peer, Clock::time_point deadline);
  void wait(MessageRound& round, Clock::time_point deadline);
  void check_interrupted() const;

  const Options options_;
  const Descriptor interruption_;  // an eventfd
  std::atomic<bool> is_interrupted_{false};
  std::atomic<uint64_t> messages_sent_{0};
  std::atomic<uint64_t> bytes_sent_{0};
  Mutex mutex_;
  std::map<int, std::unique_ptr<ExchangeLink>> links_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
