#include "lockstep/strategies/coordinator/internal/closure_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/tests/support/closure_server_support.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(ClosureServer, EachResultIsThatOfItsClosure) {
  MessageLines lines;
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
  EXPECT_THAT(lines.all(), Each(HasSubstr("has joined")));
}

TEST(ClosureServer, ClosuresComeWithTheirNumberNameAndTensors) {
  MessageLines lines;
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
  MessageLines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{12}});
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(server.queue().is_done());
  WorkerThread worker(server.port(), "worker 0", square);
  EXPECT_EQ(sole_value(result_of(server, submitted)), 144);
  server.end();
  worker.get();
}

TEST(ClosureServer, ClosuresThatNoWorkerIsLeftForAreCancelledOnceTheJobIsAskedToEnd) {
  MessageLines lines;
  std::atomic<bool> is_ending{false};
  auto options = options_with(lines);
  options.worker_timeout = milliseconds(500);
  options.is_ending = [&] { return is_ending.load(); };
  ClosureServer server(options);
  const auto submitted = server.submit("square", {int64_t{12}});
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(server.queue().is_done()) << "a worker may still come";
  is_ending = true;
  EXPECT_EQ(server.queue().wait_for(submitted.closure), ClosureQueue::Outcome::kCancelled);
  EXPECT_THROW(server.queue().join(), ClosureCancelled);
}

TEST(ClosureServer, AWorkerThatIsLeftFinishesItsClosureThoughTheJobIsAskedToEnd) {
  MessageLines lines;
  auto options = options_with(lines);
  options.is_ending = [] { return true; };
  ClosureServer server(options);
  WorkerThread worker(server.port(), "worker 0", square);
  while (server.workers().empty()) std::this_thread::sleep_for(milliseconds(1));
  const auto submitted = server.submit("square", {int64_t{12}});
  EXPECT_EQ(sole_value(result_of(server, submitted)), 144);
  server.end();
  worker.get();
}

TEST(ClosureServer, TheFirstErrorSurfacesNamesItsWorkerAndCancelsTheRest) {
  MessageLines lines;
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
  MessageLines lines;
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
  ClosureServer server({.rpc = {.token = "secret"}});
  EXPECT_THROW(server.submit("f", {torch::Tensor()}), InvalidArgument);
  EXPECT_TRUE(server.queue().is_done());
}

TEST(ClosureServer, TheClosureOfASilentWorkerRunsElsewhereAndItsOwnResultDoesNotCount) {
  MessageLines lines;
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
  // The quiet worker was frozen, and reports its result while the other one computes.
  quiet.report(submitted.closure, -1);
  EXPECT_FALSE(server.queue().is_done());
  may_return.set_value();
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
  EXPECT_THAT(lines.all(), ::testing::Contains("quiet worker is lost: its closures run elsewhere"));
  server.end();  // the quiet worker is lost again
  worker.get();
}

TEST(ClosureServer, AWorkerThatComputesForLongIsNotLost) {
  MessageLines lines;
  auto options = options_with(lines);
  options.worker_timeout = milliseconds(400);
  ClosureServer server(options);
  const auto submitted = server.submit("wait", {});
  WorkerThread worker(server.port(), "worker 0",
                      [](uint64_t, const std::string&, const ClosureValues&) -> ClosureValues {
                        std::this_thread::sleep_for(milliseconds(1'000));
                        return {true};
                      });
  EXPECT_TRUE(sole_value<bool>(result_of(server, submitted)));
  EXPECT_EQ(server.num_lost_workers(), 0);
  server.end();
  worker.get();
}

TEST(ClosureServer, WhatDidNotReachAWorkerComesAgain) {
  MessageLines lines;
  ClosureServer server(options_with(lines));
  const auto submitted = server.submit("square", {int64_t{5}});
  ASSERT_EQ(QuietWorker(server.port(), 1).closure().closure,
            submitted.closure);  // then its connection is lost
  QuietWorker again(server.port(), 1);
  ASSERT_EQ(again.closure().closure, submitted.closure);
  again.report(submitted.closure, 25);
  EXPECT_EQ(sole_value(result_of(server, submitted)), 25);
  EXPECT_EQ(server.num_lost_workers(), 0);
}

TEST(ClosureServer, WhatAWorkerHoldsIsNotGivenToOthersWhenItAsksForMore) {
  MessageLines lines;
  ClosureServer server(options_with(lines));
  const auto first = server.submit("square", {int64_t{5}});
  const auto second = server.submit("square", {int64_t{6}});
  QuietWorker quiet(server.port(), 1);
  ASSERT_EQ(quiet.closure().closure, first.closure);
  ASSERT_EQ(quiet.ask({first.closure}).closure, second.closure);
  EXPECT_EQ(quiet.ask({first.closure, second.closure}).kind, GivenClosure::Kind::kNone);
  // The answer with the second closure has not reached the worker.
  EXPECT_EQ(quiet.ask({first.closure}).closure, second.closure);
  quiet.report(second.closure, 36);
  quiet.report(first.closure, 25);
  EXPECT_EQ(sole_value(result_of(server, first)), 25);
  EXPECT_EQ(sole_value(result_of(server, second)), 36);
}

TEST(ClosureServer, AnEndThatAnEarlierCoordinatorAskedForDoesNotCount) {
  MessageLines lines;
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
  MessageLines lines;
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

TEST(ClosureServer, WorkersGoOnWithACoordinatorThatIsStartedAgain) {
  MessageLines lines;
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
  MessageLines lines;
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
  MessageLines lines;
  auto options = options_with(lines);
  ClosureServer server(options);
  auto coordinator = client_of(server.port());
  coordinator.token = "guess";
  EXPECT_THROW(serve_closures({.coordinator = coordinator, .name = "worker 0"}, calling(square)),
               ClusterError);
  EXPECT_TRUE(lines.all().empty());
}

}  // namespace
}  // namespace lockstep
