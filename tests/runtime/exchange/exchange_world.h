#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/exchange/exchange_engine.h"

namespace lockstep {

enum class TestTransport { kSockets, kEncrypted, kSharedMemory, kMixed };

/// The ranks of an exchange, as threads of this process. Ranks 0 and 1, 2 and 3, ... share a machine if the
/// transport is mixed.
class ExchangeWorld {
 public:
  struct Options {
    TestTransport transport = TestTransport::kSockets;
    size_t capacity = 64 * 1024;  ///< of shared memory
  };

  ExchangeWorld(int size, Options options);

  int size() const { return static_cast<int>(engines_.size()); }
  ExchangeEngine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  /// Returns `rank`'s end of its connection to `peer`, which then has no engine, so that a test can write
  /// any bytes.
  int take_socket(int rank, int peer);

  /// Calls a function for each rank, in its thread. Returns the errors of all ranks; empty texts: no error. A
  /// rank that has failed closes its connections, as a process that ends does.
  std::vector<std::string> on_each(const std::function<void(int rank, ExchangeEngine& engine)>& function);

 private:
  void close_connections(int rank);
  std::unique_ptr<ExchangeLink> connect(int rank, int peer, ExchangeEngine::Clock::time_point deadline);

  const Options options_;
  std::vector<std::vector<int>> sockets_;  // of each rank to each peer; -1 once they are in use
  std::map<std::pair<int, int>, std::unique_ptr<ExchangeLink>> encrypted_;  // of a rank to a peer
  std::vector<std::unique_ptr<ExchangeEngine>> engines_;
};

/// Returns a deadline that only a test that hangs reaches.
inline ExchangeEngine::Clock::time_point later() {
  return ExchangeEngine::Clock::now() + std::chrono::seconds(60);
}

}  // namespace lockstep
