#pragma once

// Workers of a ClosureServer, and helpers for tests of both.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/rpc/rpc_client.h"
#include "lockstep/strategies/coordinator/internal/closure_server.h"
#include "lockstep/strategies/coordinator/internal/closure_worker.h"

namespace lockstep {

using RunClosure = std::function<ClosureValues(uint64_t, const std::string&, const ClosureValues&)>;

/// Keeps a server's messages instead of showing them.
class MessageLines {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& line) {
      std::scoped_lock lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> all() const {
    std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline ClosureServerOptions options_with(MessageLines& lines) {
  ClosureServerOptions options;
  options.rpc.token = "secret";
  options.on_message = lines.sink();
  return options;
}

inline RpcClientOptions client_of(int port) {
  return {.name = "chief",
          .host = "127.0.0.1",
          .port = port,
          .token = "secret",
          .connect_timeout = std::chrono::milliseconds(5'000)};
}

/// A closure that calls a function.
class CallWork : public ClosureWork {
 public:
  explicit CallWork(std::function<ClosureValues()> call) : call_(std::move(call)) {}
  ClosureValues run() override { return call_(); }

 private:
  std::function<ClosureValues()> call_;
};

inline auto calling(const RunClosure& run) {
  return [run](uint64_t closure, const std::string& function, const ClosureValues& arguments) {
    return std::make_unique<CallWork>(
        [run, closure, function, arguments] { return run(closure, function, arguments); });
  };
}

/// A worker in its own thread.
class WorkerThread {
 public:
  WorkerThread(int port, const std::string& name, RunClosure run)
      : end_(std::async(std::launch::async, [port, name, run = std::move(run)] {
          serve_closures(
              {.coordinator = client_of(port), .name = name, .beat_interval = std::chrono::milliseconds(20)},
              calling(run));
        })) {}
  /// Waits until the worker ends, and rethrows its error.
  void get() { end_.get(); }

 private:
  std::future<void> end_;
};

/// A worker that the test controls: it asks once, says nothing else, and lives as long as its beats arrive.
class QuietWorker {
 public:
  QuietWorker(int port, uint64_t session) : client_(client_of(port)), session_(session) {}
  GivenClosure ask(std::vector<uint64_t> held = {}) {
    auto given = decode_given(client_.call(encode_worker_request(AskForClosure{.session = session_,
                                                                               .worker = "quiet worker",
                                                                               .coordinator = coordinator_,
                                                                               .held = std::move(held)})));
    coordinator_ = given.coordinator;
    return given;
  }
  void report(uint64_t closure, int64_t result) {
    client_.call(encode_worker_request(
        ReportEnd{.session = session_,
                  .worker = "quiet worker",
                  .ended = {.coordinator = coordinator_, .closure = closure, .results = {result}}}));
  }
  void pretend_to_be_of(uint64_t coordinator) { coordinator_ = coordinator; }
  /// Asks until the server gives a closure.
  GivenClosure closure() {
    for (;;) {
      auto given = ask();
      if (given.kind != GivenClosure::Kind::kNone) return given;
    }
  }

 private:
  RpcClient client_;
  const uint64_t session_;
  uint64_t coordinator_ = 0;
};

inline ClosureValues square(uint64_t /*closure*/, const std::string& /*function*/,
                            const ClosureValues& arguments) {
  return {std::get<int64_t>(arguments.at(0)) * std::get<int64_t>(arguments.at(0))};
}

template <typename T = int64_t>
T sole_value(const ClosureValues& values) {
  EXPECT_EQ(values.size(), 1U);
  return std::get<T>(values.at(0));
}

inline ClosureValues result_of(ClosureServer& server, const ClosureServer::Submitted& submitted) {
  EXPECT_EQ(server.queue().wait_for(submitted.closure), ClosureQueue::Outcome::kFinished);
  return submitted.result->values;
}

}  // namespace lockstep
