#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"

namespace lockstep {

/// Replica threads and one channel among them, run as a strategy runs them.
class ReplicaGroup {
 public:
  explicit ReplicaGroup(int size, LocalAlgorithm algorithm = LocalAlgorithm::kSplitOverReplicas,
                        std::chrono::milliseconds timeout = std::chrono::minutes(5))
      : threads_(size, 1), channel_(size, algorithm, timeout) {}

  int size() const { return threads_.count(); }
  ReplicaThreads& threads() { return threads_; }
  CollectiveChannel& channel() { return channel_; }
  const c10::intrusive_ptr<c10d::Backend>& backend(int replica) const { return channel_.backend(replica); }

  /// Returns each replica's error, null if it returned. The channel is usable again afterwards.
  std::vector<std::exception_ptr> errors_of(const std::function<void(int)>& function) {
    channel_.enter();
    auto errors = threads_.run(
        [&](int replica) {
          function(replica);
          channel_.leave(replica);
        },
        [&](int, const std::exception_ptr&) { channel_.abort("another replica failed"); });
    const bool failed =
        std::any_of(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
    if (failed) {
      channel_.reset();
    } else {
      channel_.check_complete();
    }
    return errors;
  }

  /// Runs, and throws the first error that is not a consequence of another one.
  void run(const std::function<void(int)>& function) {
    std::exception_ptr consequence;
    for (const auto& error : errors_of(function)) {
      if (!error) continue;
      try {
        std::rethrow_exception(error);
      } catch (const CollectiveAborted&) {
        consequence = error;
      }
    }
    if (consequence) std::rethrow_exception(consequence);
  }

 private:
  ReplicaThreads threads_;
  LocalChannel channel_;
};

/// The message of an error that is expected to be an `Error`.
template <typename Error>
std::string message_of(const std::exception_ptr& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    if constexpr (!std::is_same_v<Error, std::exception>) {
      if (dynamic_cast<const Error*>(&caught) == nullptr)
        return std::string("an error of another type: ") + caught.what();
    }
    return caught.what();
  }
}

}  // namespace lockstep
