#include "lockstep/strategies/closure_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/rpc_client.h"
#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/closure_worker.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using Run = std::function<ClosureValues(uint64_t, const std::string&, const ClosureValues&)>;

/// What a server says, kept instead of shown.
class Lines {
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

ClosureServerOptions options_with(Lines& lines) {
  ClosureServerOptions options;
  options.on_message = lines.sink();
  return options;
}

RpcClientOptions client_of(int port) {
  return {.name = "chief", .host = "127.0.0.1", .port = port, .connect_timeout = milliseconds(5'000)};
}

/// Closures that call the function.
class Call : public ClosureWork {
 public:
  explicit Call(std::function<ClosureValues()> call) : call_(std::move(call)) {}
  ClosureValues run() override { return call_(); }

 private:
  std::function<ClosureValues()> call_;
};

auto calling(const Run& run) {
  return [run](uint64_t closure, const std::string& function, const ClosureValues& arguments) {
    return std::make_unique<Call>(
        [run, closure, function, arguments] { return run(closure, function, arguments); });
  };
}

/// A worker in a thread.
class WorkerThread {
 public:
  WorkerThread(int port, const std::string& name, Run run)
      : end_(std::async(std::launch::async, [port, name, run = std::move(run)] {
          serve_closures({.coordinator = client_of(port), .name = name, .beat_interval = milliseconds(20)},
                         calling(run));
        })) {}
  /// Waits for its end, and throws what it threw.
  void get() { end_.get(); }

 private:
  std::future<void> end_;
};

/// A worker of the test's own: it asks once, says nothing else, and lives as long as its beats come.
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
  /// Asks until there is one.
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

ClosureValues square(uint64_t /*closure*/, const std::string& /*function*/, const ClosureValues& arguments) {
  return {std::get<int64_t>(arguments.at(0)) * std::get<int64_t>(arguments.at(0))};
}

template <typename T = int64_t>
T sole_value(const ClosureValues& values) {
  EXPECT_EQ(values.size(), 1U);
  return std::get<T>(values.at(0));
}

ClosureValues result_of(ClosureServer& server, const ClosureServer::Submitted& submitted) {
  EXPECT_EQ(server.queue().wait_for(submitted.closure), ClosureQueue::Outcome::kFinished);
  return submitted.result->values;
}

TEST(ClosureServer, EachResultIsThatOfItsClosure) {
  Lines lines;
  ClosureServer server(options_with(lines));
  std::vector<std::unique_ptr<WorkerThread>> workers;
  for (int i = 0; i < 3; ++i)
    workers.push_back(std::make_unique<WorkerThread>(server.port(), "worker " + std::to_string(i), square));
  std::vector<ClosureServer::Submitted> submitted;
  for (int64_t i = 0; i < 200; ++i) submitted.push_back(server.submit("square", {i}));
  server.queue().join();
  for (int64_t i = 0; i < 200; ++i)
    EXPECT_EQ(sole_value(result_of(server, submitted[static_cast<size_t>(i)])), i * i);
  server.end();
  for (auto& worker : workers) worker->get();
  EXPECT_EQ(server.num_lost_workers(), 0);
  EXPECT_THAT(lines.all(), Each(HasSubstr("has come")));
}

TEST(ClosureServer, ClosuresComeWithTheirNumberNameAndTensors) {
  Lines lines;
  ClosureServer server(options_with(lines));
  server.submit("first", {});
  const auto submitted = server.submit("sum", {torch::arange(5), std::string("text")});
  WorkerThread worker(server.port(), "worker 0",
                      [](uint64_t closure, const std::string& name, const auto& given) {
                        if (name == "first") return ClosureValues{};
                        return ClosureValues{static_cast<int64_t>(closure), name,
                                             std::get<torch::Tensor>(given.at(0)).sum(), given.at(1)};
                      });
  const auto values = result_of(server, submitted);
  ASSERT_EQ(values.size(), 4U);
  EXPECT_EQ(std::get<int64_t>(values[0]), 1);
  EXPECT_EQ(std::get<std::string>(values[1]), "sum");
  EXPECT_EQ(std::get<torch::Tensor>(values[2]).item<int64_t>(), 10);
  EXPECT_EQ(std::get<std::string>(values[3]), "text");
  EXPECT_THAT(server.workers(), ElementsAre("worker 0"));
  server.end();
  worker.get();
}

TEST(ClosureServer, AWorkerThatComesLaterRunsWhatWaits) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{12}});
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(server.queue().is_done());
  WorkerThread worker(server.port(), "worker 0", square);
  EXPECT_EQ(sole_value(result_of(server, submitted)), 144);
  server.end();
  worker.get();
}

TEST(ClosureServer, TheFirstErrorSurfacesNamesItsWorkerAndCancelsTheRest) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto failing = server.submit("fail", {});
  const auto waiting = server.submit("square", {int64_t{2}});
  WorkerThread worker(server.port(), "worker 0",
                      [](uint64_t closure, const std::string& name, const auto& given) {
                        if (name == "fail") throw InvalidArgument("a wrong number");
                        return square(closure, name, given);
                      });
  EXPECT_EQ(server.queue().wait_for(failing.closure), ClosureQueue::Outcome::kFailed);
  EXPECT_EQ(server.queue().wait_for(waiting.closure), ClosureQueue::Outcome::kCancelled);
  EXPECT_THAT([&] { std::rethrow_exception(failing.result->error); },
              ThrowsMessage<InvalidArgument>(HasSubstr("worker 0: a wrong number")));
  EXPECT_THAT([&] { server.queue().join(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("worker 0: a wrong number")));
  EXPECT_EQ(sole_value(result_of(server, server.submit("square", {int64_t{3}}))), 9);
  server.end();
  worker.get();
}

TEST(ClosureServer, AResultThatCannotBeSentIsTheClosuresError) {
  Lines lines;
  ClosureServer server(options_with(lines));
  server.submit("nothing", {});
  WorkerThread worker(server.port(), "worker 0", [](uint64_t, const std::string&, const auto&) {
    return ClosureValues{torch::Tensor()};
  });
  EXPECT_THAT([&] { server.queue().join(); },
              ThrowsMessage<InvalidArgument>(AllOf(StartsWith("worker 0: "), HasSubstr("undefined"))));
  server.end();
  worker.get();
}

TEST(ClosureServer, ArgumentsThatCannotBeSentAreRefusedWhereTheyAreGiven) {
  ClosureServer server({});
  EXPECT_THROW(server.submit("f", {torch::Tensor()}), InvalidArgument);
  EXPECT_TRUE(server.queue().is_done());
}

TEST(ClosureServer, TheClosureOfASilentWorkerRunsElsewhereAndItsOwnResultDoesNotCount) {
  Lines lines;
  auto options = options_with(lines);
  options.worker_timeout = milliseconds(300);
  ClosureServer server(options);
  const auto submitted = server.submit("square", {int64_t{5}});
  QuietWorker quiet(server.port(), 1);
  ASSERT_EQ(quiet.closure().closure, submitted.closure);

  std::promise<void> may_return;
  WorkerThread worker(
      server.port(), "worker 1",
      [&, may = may_return.get_future().share()](uint64_t closure, const auto& name, const auto& given) {
        if (closure == submitted.closure) may.wait();
        return square(closure, name, given);
      });
  while (server.num_lost_workers() == 0) std::this_thread::sleep_for(milliseconds(5));
  // It was frozen, and comes with its result while the other one computes.
  quiet.report(submitted.closure, -1);
  EXPECT_FALSE(server.queue().is_done());
  may_return.set_value();
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
  EXPECT_THAT(lines.all(), ::testing::Contains("quiet worker is lost: its closures run elsewhere"));
  server.end();  // the quiet worker is lost again
  worker.get();
}

TEST(ClosureServer, AWorkerThatComputesForLongIsNotLost) {
  Lines lines;
  auto options = options_with(lines);
  options.worker_timeout = milliseconds(400);
  ClosureServer server(options);
  const auto submitted = server.submit("wait", {});
  WorkerThread worker(server.port(), "worker 0", [](uint64_t, const std::string&, const auto&) {
    std::this_thread::sleep_for(milliseconds(1'000));
    return ClosureValues{true};
  });
  EXPECT_TRUE(sole_value<bool>(result_of(server, submitted)));
  EXPECT_EQ(server.num_lost_workers(), 0);
  server.end();
  worker.get();
}

TEST(ClosureServer, WhatDidNotReachAWorkerComesAgain) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{5}});
  ASSERT_EQ(QuietWorker(server.port(), 1).closure().closure,
            submitted.closure);  // and its connection is lost
  QuietWorker again(server.port(), 1);
  ASSERT_EQ(again.closure().closure, submitted.closure);
  again.report(submitted.closure, 25);
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
  EXPECT_EQ(server.num_lost_workers(), 0);
}

TEST(ClosureServer, WhatAWorkerHoldsIsNotGivenToOthersWhenItAsksForMore) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto first = server.submit("square", {int64_t{5}});
  const auto second = server.submit("square", {int64_t{6}});
  QuietWorker quiet(server.port(), 1);
  ASSERT_EQ(quiet.closure().closure, first.closure);
  ASSERT_EQ(quiet.ask({first.closure}).closure, second.closure);
  EXPECT_EQ(quiet.ask({first.closure, second.closure}).kind, GivenClosure::Kind::kNone);
  // The answer with the second one has not reached it.
  EXPECT_EQ(quiet.ask({first.closure}).closure, second.closure);
  quiet.report(second.closure, 36);
  quiet.report(first.closure, 25);
  EXPECT_EQ(sole_value(result_of(server, first)), 25);
  EXPECT_EQ(sole_value(result_of(server, second)), 36);
}

TEST(ClosureServer, AnEndThatAnEarlierCoordinatorAskedForDoesNotCount) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{5}});
  QuietWorker quiet(server.port(), 1);
  const auto given = quiet.closure();
  quiet.pretend_to_be_of(given.coordinator + 1);
  quiet.report(submitted.closure, -1);
  EXPECT_FALSE(server.queue().is_done());
  quiet.pretend_to_be_of(given.coordinator);
  quiet.report(submitted.closure, 25);
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
}

TEST(ClosureServer, AWorkerIsToldTheEndOnceItHoldsNothing) {
  Lines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{5}});
  QuietWorker quiet(server.port(), 1);
  const auto given = quiet.closure();
  auto end = std::async(std::launch::async, [&] { server.end(); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(quiet.ask({given.closure}).kind, GivenClosure::Kind::kNone);
  quiet.report(given.closure, 25);
  while (quiet.ask().kind != GivenClosure::Kind::kEnd) {
  }
  end.get();
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
}

/// Notes when its parts begin and end.
class NotedWork : public ClosureWork {
 public:
  NotedWork(uint64_t closure, Lines& lines, bool looks_ahead)
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
  Lines lines;
  Lines parts;
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
  Lines lines;
  Lines parts;
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
  EXPECT_THAT(lines.all(), ElementsAre("worker 0 has come", "worker 0 has left"));
  EXPECT_EQ(server.num_lost_workers(), 0);
  EXPECT_TRUE(server.workers().empty());
  // All that it has begun is there, and the rest waits.
  const auto noted = parts.all();
  const auto begun = static_cast<size_t>(std::count_if(
      noted.begin(), noted.end(), [](const auto& part) { return part.starts_with("prepare"); }));
  EXPECT_LT(begun, submitted.size());
  for (size_t i = 0; i < submitted.size(); ++i)
    EXPECT_EQ(server.queue().is_open(submitted[i].closure), i >= begun) << i;
}

/// Throws in one of its parts.
class FailingWork : public ClosureWork {
 public:
  explicit FailingWork(std::string part) : part_(std::move(part)) {}
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
  Lines lines;
  ClosureServer server(options_with(lines));
  auto worker = std::async(std::launch::async, [&] {
    serve_closures({.coordinator = client_of(server.port()), .name = "worker 0"},
                   [](uint64_t, const std::string& function, const ClosureValues&) {
                     if (function == "begin") throw InvalidArgument("an error in begin");
                     return std::make_unique<FailingWork>(function);
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

TEST(ClosureServer, WorkersGoOnWithACoordinatorThatIsStartedAgain) {
  Lines lines;
  auto options = options_with(lines);
  auto server = std::make_unique<ClosureServer>(options);
  options.rpc.port = server->port();
  WorkerThread worker(server->port(), "worker 0", square);
  EXPECT_EQ(sole_value(result_of(*server, server->submit("square", {int64_t{2}}))), 4);
  server.reset();
  server = std::make_unique<ClosureServer>(options);
  EXPECT_EQ(sole_value(result_of(*server, server->submit("square", {int64_t{3}}))), 9);
  server->end();
  worker.get();
}

TEST(ClosureServer, AWorkerEndsWithoutACoordinatorThatDoesNotComeBack) {
  Lines lines;
  auto server = std::make_unique<ClosureServer>(options_with(lines));
  auto coordinator = client_of(server->port());
  coordinator.connect_timeout = milliseconds(200);
  auto end = std::async(std::launch::async, [&] {
    serve_closures({.coordinator = coordinator, .name = "worker 0"}, calling(square));
  });
  result_of(*server, server->submit("square", {int64_t{2}}));
  server.reset();
  EXPECT_THAT([&] { end.get(); }, ThrowsMessage<PeerLost>(HasSubstr("chief")));
}

TEST(ClosureServer, AWorkerOfAnotherJobIsRefused) {
  Lines lines;
  auto options = options_with(lines);
  options.rpc.token = "secret";
  ClosureServer server(options);
  auto coordinator = client_of(server.port());
  coordinator.token = "guess";
  EXPECT_THROW(serve_closures({.coordinator = coordinator, .name = "worker 0"}, calling(square)),
               ClusterError);
  EXPECT_TRUE(lines.all().empty());
}

}  // namespace
}  // namespace lockstep
