#include "lockstep/strategies/coordinator/cluster_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/tests/runtime/cluster/job_token.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job of a chief and workers, each in its own thread, as processes would be.
class CoordinatedJob {
 public:
  explicit CoordinatedJob(int num_workers, const CoordinatorOptions& options = {}) : socket_("127.0.0.1", 0) {
    ClusterSpec::Jobs jobs{{"chief", {{0, {"127.0.0.1", socket_.port()}}}}};
    for (int i = 0; i < num_workers; ++i) jobs["worker"][i] = {"127.0.0.1", i + 1};
    spec_ = ClusterSpec(jobs);
    cluster_.token = kJobToken;
    cluster_.join_timeout = milliseconds(5'000);
    auto chief = cluster_;
    chief.listening_socket = socket_.release();
    auto quiet = options;
    quiet.on_message = [](const std::string&) {};
    chief_ = std::make_unique<ClusterCoordinator>(resolver("chief", 0), quiet, chief);
  }

  ClusterCoordinator& chief() { return *chief_; }
  std::shared_ptr<const ClusterResolver> resolver(const std::string& type, int task) const {
    return std::make_shared<SimpleClusterResolver>(spec_, type, task);
  }
  const ClusterOptions& cluster() const { return cluster_; }

  /// Starts a worker whose functions are defined by `define(coordinator)`.
  template <typename Define>
  void start_worker(int task, const Define& define) {
    workers_.push_back(std::async(std::launch::async, [this, task, define] {
      ClusterCoordinator worker(resolver("worker", task), {}, cluster_);
      define(worker);
      worker.serve();
    }));
  }
  /// Ends the chief, and rethrows a worker's error.
  void end() {
    chief_->end();
    for (auto& worker : workers_) worker.get();
  }

 private:
  TcpListener socket_;
  ClusterSpec spec_;
  ClusterOptions cluster_;
  std::unique_ptr<ClusterCoordinator> chief_;
  std::vector<std::future<void>> workers_;
};

void define_sum(ClusterCoordinator& coordinator) {
  coordinator.define("sum", [](const torch::Tensor& values, double factor) { return values.sum() * factor; });
  coordinator.define("fail", []() -> int64_t { throw InvalidArgument("not a row"); });
}

TEST(ClusterCoordinator, TheSameProgramGivesValuesThatTheChiefFetches) {
  CoordinatedJob job(2);
  define_sum(job.chief());
  for (int task = 0; task < 2; ++task) job.start_worker(task, define_sum);
  std::vector<RemoteValue> sums;
  for (int64_t i = 0; i < 50; ++i) sums.push_back(job.chief().schedule("sum", torch::arange(i + 1), 2));
  job.chief().join();
  EXPECT_TRUE(job.chief().done());
  const auto fetched = job.chief().fetch<torch::Tensor>(sums);
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_TRUE(sums[static_cast<size_t>(i)].is_ready());
    EXPECT_EQ(fetched[static_cast<size_t>(i)].item<double>(),
              static_cast<double>(i * (i + 1)));  // n (n+1) / 2
  }
  EXPECT_EQ(job.chief().num_lost_workers(), 0);
  job.end();
}

TEST(ClusterCoordinator, FetchingWaitsForTheValue) {
  CoordinatedJob job(1);
  define_sum(job.chief());
  const auto sum = job.chief().schedule("sum", torch::ones(3), 0.5);
  EXPECT_FALSE(sum.is_ready());
  EXPECT_FALSE(job.chief().done());
  job.start_worker(0, define_sum);
  EXPECT_EQ(sum.fetch<torch::Tensor>().item<double>(), 1.5);
  const auto incomplete = job.chief().schedule("sum", torch::ones(3));
  EXPECT_THAT(message_of<InvalidArgument>([&] { incomplete.fetch_all(); }),
              HasSubstr("closure 'sum': expected 2 arguments, but got 1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { sum.fetch<int64_t>(); }),
              HasSubstr("closure 0: expected an integer as its result, but got a tensor"));
  job.end();
}

TEST(ClusterCoordinator, AnErrorSurfacesOnceAtTheNextCallAndAtItsValue) {
  CoordinatedJob job(1);
  define_sum(job.chief());
  const auto failing = job.chief().schedule("fail");
  const auto after = job.chief().schedule("sum", torch::ones(1), 1.0);
  job.start_worker(0, define_sum);
  const auto error = AllOf(HasSubstr("worker 0"), HasSubstr("not a row"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { failing.fetch<int64_t>(); }), error);
  EXPECT_THAT(message_of<ClosureCancelled>([&] { after.fetch_all(); }), HasSubstr("closure 1 was cancelled"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().schedule("sum", torch::ones(1), 1.0); }), error);
  EXPECT_EQ(job.chief().schedule("sum", torch::ones(1), 4.0).fetch<torch::Tensor>().item<double>(), 4);
  EXPECT_THAT(message_of<InvalidArgument>([&] { failing.fetch<int64_t>(); }), error);  // on every fetch
  job.end();
}

TEST(ClusterCoordinator, EachWorkerMakesItsDatasetOnce) {
  constexpr int kWorkers = 2;
  CoordinatedJob job(kWorkers);
  std::atomic<int> num_made = 0;
  const auto define = [&](ClusterCoordinator& coordinator) {
    // Worker i counts from i on in steps of the number of workers, like a stream that is dealt out.
    const auto numbers = coordinator.create_per_worker_dataset([&num_made](const InputContext& context) {
      ++num_made;
      return [next = int64_t{context.input_pipeline_id}, context]() mutable {
        return std::exchange(next, next + context.num_input_pipelines);
      };
    });
    coordinator.define("next", [numbers] { return (*numbers)(); });
  };
  define(job.chief());
  for (int task = 0; task < kWorkers; ++task) job.start_worker(task, define);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 100; ++i) values.push_back(job.chief().schedule("next"));
  const auto numbers = job.chief().fetch<int64_t>(values);
  EXPECT_EQ(std::set<int64_t>(numbers.begin(), numbers.end()).size(), 100U);  // no number twice
  EXPECT_LE(num_made, kWorkers);
  EXPECT_GE(num_made, 1);
  job.end();
}

TEST(ClusterCoordinator, TheChiefHasNoDatasetOfAWorkers) {
  CoordinatedJob job(1);
  const auto numbers = job.chief().create_per_worker_dataset([](const InputContext&) { return 1; });
  EXPECT_THAT(message_of<InvalidArgument>([&] { numbers.local(); }), HasSubstr("asked for by the chief"));
}

TEST(ClusterCoordinator, AFunctionKnowsItsClosuresNumber) {
  CoordinatedJob job(1);
  const auto define = [](ClusterCoordinator& coordinator) {
    coordinator.define("number", [&coordinator] { return coordinator.current_closure(); });
  };
  define(job.chief());
  job.start_worker(0, define);
  for (int i = 0; i < 5; ++i) {
    const auto value = job.chief().schedule("number");
    EXPECT_EQ(value.fetch<uint64_t>(), value.closure());
  }
  job.end();
}

TEST(ClusterCoordinator, WithStalenessZeroClosuresRunOneAfterAnother) {
  CoordinatedJob job(3, {.max_staleness = 0});
  std::atomic<int> num_running = 0;
  std::atomic<int> most = 0;
  const auto define = [&](ClusterCoordinator& coordinator) {
    coordinator.define("wait", [&] {
      most = std::max<int>(most, ++num_running);
      std::this_thread::sleep_for(milliseconds(5));
      --num_running;
    });
  };
  define(job.chief());
  for (int task = 0; task < 3; ++task) job.start_worker(task, define);
  for (int i = 0; i < 20; ++i) job.chief().schedule("wait");
  job.chief().join();
  EXPECT_EQ(most, 1);
  job.end();
}

TEST(ClusterCoordinator, WhatWaitsAtTheEndIsCancelled) {
  CoordinatedJob job(1);
  define_sum(job.chief());
  const auto sum = job.chief().schedule("sum", torch::ones(1), 1.0);
  job.end();
  EXPECT_THROW(sum.fetch_all(), ClosureCancelled);
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().schedule("sum", torch::ones(1), 1.0); }),
              HasSubstr("after its end"));
}

TEST(ClusterCoordinator, AValueOutlivesItsCoordinator) {
  std::optional<CoordinatedJob> job(1);
  define_sum(job->chief());
  job->start_worker(0, define_sum);
  const auto sum = job->chief().schedule("sum", torch::ones(4), 1.0);
  job->chief().join();
  job->end();
  job.reset();
  EXPECT_EQ(sum.fetch<torch::Tensor>().item<double>(), 4);
}

ClusterSpec spec_with_chief(int port) {
  return ClusterSpec(
      {{"chief", {{0, {"127.0.0.1", port}}}}, {"worker", {{0, {"node7", 1}}, {3, {"node8", 1}}}}});
}

TEST(ClusterCoordinator, NamesTheWorkersThatAreMissing) {
  TcpListener bound("127.0.0.1", 0);
  ClusterOptions cluster{.token = kJobToken};
  cluster.join_timeout = milliseconds(100);
  cluster.listening_socket = bound.descriptor();
  const auto resolver = std::make_shared<SimpleClusterResolver>(spec_with_chief(bound.port()), "chief", 0);
  ClusterCoordinator coordinator(resolver, {.worker_timeout = milliseconds(200)}, cluster);
  bound.release();  // the coordinator owns it
  define_sum(coordinator);
  coordinator.schedule("sum", torch::ones(1), 1.0);
  EXPECT_THAT(message_of<ClusterError>([&] { coordinator.join(); }),
              AllOf(HasSubstr("expected worker 0 (node7), worker 3 (node8) at 127.0.0.1:"),
                    HasSubstr("no worker was there for 0.1 s")));
}

TEST(ClusterCoordinator, AWorkerNamesAChiefThatIsMissing) {
  const TcpListener bound("127.0.0.1", 0);  // nobody listens
  ClusterOptions cluster{.token = kJobToken};
  cluster.join_timeout = milliseconds(100);
  ClusterCoordinator worker(
      std::make_shared<SimpleClusterResolver>(spec_with_chief(bound.port()), "worker", 3), {}, cluster);
  EXPECT_THAT(message_of<PeerLost>([&] { worker.serve(); }), HasSubstr("the chief (127.0.0.1:"));
}

/// Waits until the chief knows `num_workers` workers.
void wait_for_workers(const ClusterCoordinator& chief, size_t num_workers) {
  while (chief.workers().size() != num_workers) std::this_thread::sleep_for(milliseconds(1));
}

TEST(ClusterCoordinator, TheJobDoesNotEndWhileAWorkerStillPrepares) {
  CoordinatedJob job(1);
  ClusterCoordinator worker(job.resolver("worker", 0), {}, job.cluster());
  wait_for_workers(job.chief(), 1);
  auto end = std::async(std::launch::async, [&] { job.chief().end(); });
  EXPECT_EQ(end.wait_for(milliseconds(100)), std::future_status::timeout);
  worker.serve();  // throws PeerLost if the chief has ended
  end.get();
}

TEST(ClusterCoordinator, TheJobEndsWithoutAWorkerThatNeverServes) {
  CoordinatedJob job(1);
  {
    const ClusterCoordinator worker(job.resolver("worker", 0), {}, job.cluster());
    wait_for_workers(job.chief(), 1);
  }
  EXPECT_THAT(job.chief().workers(), IsEmpty());
  EXPECT_EQ(job.chief().num_lost_workers(), 0);
  job.end();
}

TEST(ClusterCoordinator, RefusesWhatIsNotItsPart) {
  CoordinatedJob job(1);
  define_sum(job.chief());
  EXPECT_THAT(message_of<InvalidArgument>([&] { define_sum(job.chief()); }),
              HasSubstr("'sum' is defined already"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().schedule("mean"); }),
              HasSubstr("expected the name of a function that is defined, fail, sum, but got 'mean'"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { job.chief().serve(); }), HasSubstr("by the chief"));

  ClusterCoordinator worker(job.resolver("worker", 0), {}, job.cluster());
  EXPECT_FALSE(worker.is_chief());
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { worker.schedule("sum"); }, [&] { worker.join(); }, [&] { worker.done(); },
           [&] { worker.workers(); }, [&] { worker.num_lost_workers(); }})
    EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr("was called by worker 0"));
}

TEST(ClusterCoordinator, RefusesAJobWithoutAChiefAndOtherTasks) {
  const ClusterSpec without({{"worker", {{0, {"127.0.0.1", 1}}}}});
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { ClusterCoordinator(std::make_shared<SimpleClusterResolver>(without, "worker", 0)); }),
              HasSubstr("expected a cluster with a chief"));
  const ClusterSpec with({{"chief", {{0, {"127.0.0.1", 1}}}}, {"ps", {{0, {"127.0.0.1", 2}}}}});
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { ClusterCoordinator(std::make_shared<SimpleClusterResolver>(with, "ps", 0)); }),
              HasSubstr("expected a chief or a worker, but got ps 0"));
}

}  // namespace
}  // namespace lockstep
