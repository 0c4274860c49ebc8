#include "lockstep/strategies/coordinator/internal/closure_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/closure_server_support.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Notes when its parts begin and end.
class NotedWork : public ClosureWork {
 public:
  NotedWork(uint64_t closure, MessageLines& lines, bool looks_ahead)
      : closure_(closure), note_(lines.sink()), looks_ahead_(looks_ahead) {}
  void prepare() override { note("prepare"); }
  ClosureValues run() override {
    note("run");
    std::this_thread::sleep_for(milliseconds(150));
    note("has run");
    return {static_cast<int64_t>(closure_)};
  }
  void finish(ClosureValues& results) override {
    note("finish");
    std::this_thread::sleep_for(milliseconds(30));
    results.emplace_back(std::string("finished"));
  }
  bool looks_ahead() const override { return looks_ahead_; }

 private:
  void note(const std::string& what) { note_(what + " " + std::to_string(closure_)); }

  const uint64_t closure_;
  const std::function<void(const std::string&)> note_;
  const bool looks_ahead_;
};

std::vector<std::string> parts_of_three_closures(bool look_ahead) {
  MessageLines lines;
  MessageLines parts;
  ClosureServer server(options_with(lines));
  std::vector<ClosureServer::Submitted> submitted;
  for (int i = 0; i < 3; ++i) submitted.push_back(server.submit("f", {}));
  auto worker = std::async(std::launch::async, [&] {
    serve_closures({.coordinator = client_of(server.port()), .name = "worker 0"},
                   [&](uint64_t closure, const std::string&, const ClosureValues&) {
                     return std::make_unique<NotedWork>(closure, parts, look_ahead);
                   });
  });
  for (const auto& each : submitted) {
    const auto values = result_of(server, each);
    EXPECT_EQ(values.size(), 2U);
    EXPECT_EQ(std::get<int64_t>(values.at(0)), static_cast<int64_t>(each.closure));
    EXPECT_EQ(std::get<std::string>(values.at(1)), "finished");
  }
  server.end();
  worker.get();
  return parts.all();
}

TEST(ClosureWorker, PreparesTheNextClosureAndFinishesTheLastOneWhileOneRuns) {
  const auto parts = parts_of_three_closures(/*look_ahead=*/true);
  const auto place = [&](const std::string& part) {
    return std::find(parts.begin(), parts.end(), part) - parts.begin();
  };
  EXPECT_EQ(parts.size(), 12U);
  for (const std::string closure : {"0", "1", "2"}) {
    EXPECT_LT(place("prepare " + closure), place("run " + closure));
    EXPECT_LT(place("has run " + closure), place("finish " + closure));
  }
  for (const auto& [closure, next] : {std::pair<std::string, std::string>("0", "1"), {"1", "2"}}) {
    EXPECT_LT(place("prepare " + next), place("has run " + closure));
    EXPECT_LT(place("has run " + closure), place("run " + next));
    EXPECT_LT(place("finish " + closure), place("has run " + next));
  }
}

TEST(ClosureWorker, AsksForTheNextClosureWhenTheLastOneHasEndedUnlessItLooksAhead) {
  EXPECT_THAT(parts_of_three_closures(/*look_ahead=*/false),
              ElementsAre("prepare 0", "run 0", "has run 0", "finish 0", "prepare 1", "run 1", "has run 1",
                          "finish 1", "prepare 2", "run 2", "has run 2", "finish 2"));
}

TEST(ClosureWorker, GoesOnceWhatItHasIsDone) {
  MessageLines lines;
  MessageLines parts;
  ClosureServer server(options_with(lines));
  std::vector<ClosureServer::Submitted> submitted;
  for (int i = 0; i < 20; ++i) submitted.push_back(server.submit("f", {}));
  std::atomic<bool> is_leaving = false;
  auto worker = std::async(std::launch::async, [&] {
    serve_closures({.coordinator = client_of(server.port()),
                    .name = "worker 0",
                    .is_leaving = [&] { return is_leaving.load(); }},
                   [&](uint64_t closure, const std::string&, const ClosureValues&) {
                     return std::make_unique<NotedWork>(closure, parts, /*looks_ahead=*/true);
                   });
  });
  result_of(server, submitted[0]);
  is_leaving = true;
  worker.get();
  EXPECT_THAT(lines.all(), ElementsAre("worker 0 has joined", "worker 0 has left"));
  EXPECT_EQ(server.num_lost_workers(), 0);
  EXPECT_TRUE(server.workers().empty());
  // Every closure that it began is done; the others are still open.
  const auto noted = parts.all();
  const auto begun = static_cast<size_t>(std::count_if(
      noted.begin(), noted.end(), [](const auto& part) { return part.starts_with("prepare"); }));
  EXPECT_LT(begun, submitted.size());
  for (size_t i = 0; i < submitted.size(); ++i)
    EXPECT_EQ(server.queue().is_open(submitted[i].closure), i >= begun) << i;
}

/// Throws in one of its parts.
class ThrowingWork : public ClosureWork {
 public:
  explicit ThrowingWork(std::string part) : part_(std::move(part)) {}
  void prepare() override { fail_in("prepare"); }
  ClosureValues run() override {
    fail_in("run");
    return {};
  }
  void finish(ClosureValues&) override { fail_in("finish"); }
  bool looks_ahead() const override { return true; }

 private:
  void fail_in(const std::string& part) const {
    if (part == part_) throw InvalidArgument("an error in " + part);
  }
  const std::string part_;
};

TEST(ClosureWorker, WhatAnyPartThrowsIsTheClosuresEndAndTheNextOneGoesOn) {
  MessageLines lines;
  ClosureServer server(options_with(lines));
  auto worker = std::async(std::launch::async, [&] {
    serve_closures({.coordinator = client_of(server.port()), .name = "worker 0"},
                   [](uint64_t, const std::string& function, const ClosureValues&) {
                     if (function == "begin") throw InvalidArgument("an error in begin");
                     return std::make_unique<ThrowingWork>(function);
                   });
  });
  for (const std::string part : {"begin", "prepare", "run", "finish"}) {
    const auto failing = server.submit(part, {});
    EXPECT_THAT([&] { server.queue().join(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("worker 0: an error in " + part)));
    EXPECT_EQ(server.queue().wait_for(failing.closure), ClosureQueue::Outcome::kFailed);
  }
  result_of(server, server.submit("none", {}));
  server.end();
  worker.get();
}

}  // namespace
}  // namespace lockstep
