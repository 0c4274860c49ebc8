#include "lockstep/runtime/workers/worker_failures.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <atomic>
#include <optional>
#include <thread>

#include "lockstep/runtime/base/net/udp_socket.h"
#include "lockstep/runtime/store/store_server.h"
#include "lockstep/runtime/workers/gloo_backend.h"
#include "lockstep/runtime/workers/job_store.h"
#include "lockstep/runtime/workers/worker_info.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using FailureClock = std::chrono::steady_clock;

// Far below the timeouts of run_workers(), but far above a second on a busy machine.
constexpr std::chrono::seconds kSoon{20};

void sum_of_three(c10d::Backend& backend) {
  std::vector<at::Tensor> values{at::zeros({3})};
  backend.allreduce(values)->wait();
}

/// Calls run_workers() and expects it to end before any timeout.
std::vector<std::exception_ptr> run_workers_soon(const std::vector<int>& num_replicas,
                                                 const std::function<void(WorkerGroup&)>& work) {
  const auto begin = FailureClock::now();
  const auto errors = run_workers(num_replicas, work);
  EXPECT_LT(FailureClock::now() - begin, kSoon);
  return errors;
}

TEST(WorkerFailures, NameAWorkerThatThrewAfterItsLastCollective) {
  std::atomic<int> num_others{2};
  const auto errors = run_workers_soon({1, 1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    try {
      // The others may still be within the sum when worker 1 has its result.
      replicas.run([](int replica, c10d::Backend& backend) {
        sum_of_three(backend);
        if (replica == 1) throw std::runtime_error("the user's own error");
      });
      group.gather("after the run");
    } catch (const std::runtime_error&) {
      if (group.layout()->worker() != 1) --num_others;
      // The failed worker may have much to do before it ends.
      const auto deadline = FailureClock::now() + 2 * kSoon;
      while (group.layout()->worker() == 1 && num_others > 0 && FailureClock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      throw;
    }
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "the user's own error");
  for (const size_t other : {0, 2})
    EXPECT_THAT(message_of<PeerLost>(errors[other]),
                AllOf(HasSubstr("worker 1 ("), HasSubstr("a replica failed")));
}

TEST(WorkerFailures, EndThoseThatWaitForTheLastWorkersToFinish) {
  const auto errors = run_workers_soon({1, 1, 1}, [&](WorkerGroup& group) {
    group.gather("the last collective");
    if (group.layout()->worker() != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // by then the others wait for this worker
    throw std::runtime_error("the user's own error");
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "the user's own error");
  for (const size_t other : {0, 2}) EXPECT_EQ(message_of<std::exception>(errors[other]), "no error");
}

TEST(WorkerFailures, OfWorkerZeroAreReadByOthersThatComeAfterItsEnd) {
  const auto errors = run_workers_soon({1, 1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([](int replica, c10d::Backend& backend) {
      sum_of_three(backend);
      if (replica == 0) throw std::runtime_error("the user's own error");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      sum_of_three(backend);
    });
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[0]), "the user's own error");
  for (const size_t other : {1, 2})
    EXPECT_THAT(message_of<PeerLost>(errors[other]),
                AllOf(HasSubstr("worker 0 ("), HasSubstr("a replica failed")));
}

/// The failures of worker 1 of two, with a store of their own, and a detector that makes a round when
/// `rounds` is raised.
class Explained : public testing::Test {
 protected:
  std::unique_ptr<WorkerFailures> failures(CauseSearch search) {
    search.rounds = [this] { return std::optional<uint64_t>(rounds_); };
    return std::make_unique<WorkerFailures>(1, std::vector<std::string>{"worker 0 (a)", "worker 1 (b)"},
                                            store_, std::move(search));
  }

  static std::exception_ptr broken() {
    return std::make_exception_ptr(std::runtime_error("Connection reset by peer"));
  }

  std::atomic<uint64_t> rounds_{5};
  const JobToken token_ = JobToken::random();
  StoreServer server_{TcpListener("127.0.0.1", 0), {.token = token_}};
  const std::shared_ptr<StoreClient> store_ = std::make_shared<StoreClient>(
      StoreClientOptions{.host = "127.0.0.1", .port = server_.port(), .token = token_, .name = "worker 1"});
};

TEST_F(Explained, ByTheDetectorsWordThoughTheMachineIsTooBusyForItToComeInTime) {
  auto told = failures({.time = milliseconds(20), .detector_rounds = 3, .longest = kSoon});
  std::thread detector([&] {
    std::this_thread::sleep_for(milliseconds(300));  // far beyond the usual time
    rounds_ += 2;
    std::this_thread::sleep_for(milliseconds(100));
    told->lose({.rank = 0, .name = "worker 0 (a)", .reason = "its process ended"});
    ++rounds_;
  });
  const auto error = told->explain("Sum", broken());
  detector.join();
  EXPECT_EQ(message_of<PeerLost>(error), "worker 0 (a) was lost: its process ended");
}

TEST_F(Explained, ByTheConnectionIfTheDetectorHasLookedAndFoundNothing) {
  auto told = failures({.time = milliseconds(20), .detector_rounds = 3, .longest = kSoon});
  std::thread detector([&] {
    std::this_thread::sleep_for(milliseconds(50));
    rounds_ += 3;
  });
  const auto begin = FailureClock::now();
  const auto error = told->explain("Sum", broken());
  detector.join();
  EXPECT_LT(FailureClock::now() - begin, kSoon / 2);
  EXPECT_THAT(message_of<PeerLost>(error), HasSubstr("[Sum] the connection to another worker broke: "
                                                     "Connection reset by peer"));
  EXPECT_TRUE(told->is_origin());
  EXPECT_THAT(store_->get({WorkerFailures::kKey}, {}, {})->front(),
              HasSubstr("worker 1 (b): [Sum] the connection to another worker broke"));
}

TEST_F(Explained, ByTheConnectionIfTheDetectorDoesNotLookAnyMore) {
  auto told = failures({.time = milliseconds(20), .detector_rounds = 3, .longest = milliseconds(200)});
  const auto begin = FailureClock::now();
  EXPECT_THAT(message_of<PeerLost>(told->explain("Sum", broken())), HasSubstr("Connection reset by peer"));
  EXPECT_GE(FailureClock::now() - begin, milliseconds(200));
  EXPECT_LT(FailureClock::now() - begin, kSoon);
}

/// A store whose keys never come.
class StoreWithoutKeys : public c10d::PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  bool hasExtendedApi() const override { return false; }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key});
    return {};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, kNoTimeout); }
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    throw std::runtime_error("no keys");
  }
};

/// Worker 1 of two publishes its info and dies, before or while it connects. Returns the error that worker 0
/// threw.
std::exception_ptr error_of_joining_with_a_dying_worker(bool begins_to_connect) {
  TcpListener listener("127.0.0.1", 0);
  const JoinOptions options{.size = 2,
                            .master_host = "127.0.0.1",
                            .master_port = listener.port(),
                            .listening_socket = listener.release(),
                            .token = "a token",
                            .join_timeout = std::chrono::seconds(30)};
  std::thread dying([&] {
    std::optional<UdpSocket> heartbeat("127.0.0.1");
    const auto store =
        std::make_shared<StoreClient>(StoreClientOptions{.host = options.master_host,
                                                         .port = options.master_port,
                                                         .token = JobToken::from_text(options.token),
                                                         .name = "worker 1"});
    const WorkerInfo info{.host = "dying",
                          .address = "127.0.0.1",
                          .heartbeat_port = heartbeat->port(),
                          .heartbeat_session = std::string(64, '0'),
                          .facts = {{"world size", "2"}}};
    store->set("worker/1", info.text());
    if (begins_to_connect) {
      // The other side has all it needs and waits for this connection.
      const auto connecting = c10::make_intrusive<StoreWithoutKeys>(
          "space/0", c10::make_intrusive<JobStore>(store, std::vector<std::string>(), kSoon));
      EXPECT_THROW(make_gloo_backend(connecting, {1, 2, "127.0.0.1", kSoon}), std::exception);
    }
    heartbeat.reset();
  });
  const auto begin = FailureClock::now();
  std::exception_ptr error;
  try {
    WorkerGroup::join(options)->gather("all are connected");
  } catch (...) {
    error = std::current_exception();
  }
  EXPECT_LT(FailureClock::now() - begin, kSoon);
  dying.join();
  return error;
}

TEST(WorkerFailures, NameAWorkerThatDiedBeforeItConnected) {
  EXPECT_THAT(message_of<PeerLost>(error_of_joining_with_a_dying_worker(false)),
              HasSubstr("worker 1 (dying) was lost: its process ended"));
}

TEST(WorkerFailures, NameAWorkerThatDiedWhileItConnected) {
  // The ports that the system assigned decide which worker connects and which one waits.
  for (int attempt = 0; attempt < 6 && !HasFailure(); ++attempt) {
    EXPECT_THAT(message_of<PeerLost>(error_of_joining_with_a_dying_worker(true)),
                HasSubstr("worker 1 (dying) was lost: its process ended"));
  }
}

/// Worker 0 throws between runs. The others, who wait for it in `collective`, learn of it before worker 0 is
/// gone.
void expect_early_end_of_worker_zero(const std::function<void(WorkerGroup&, WorkerReplicas&)>& collective) {
  std::atomic<FailureClock::duration> thrown{};
  std::atomic<FailureClock::duration> noticed{};
  const auto errors = run_workers({1, 1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    if (group.layout()->worker() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      thrown = FailureClock::now().time_since_epoch();
      throw std::runtime_error("bad data");
    }
    try {
      collective(group, replicas);
    } catch (...) {
      noticed = FailureClock::now().time_since_epoch();
      throw;
    }
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[0]), "bad data");
  for (const size_t other : {1, 2}) {
    EXPECT_THAT(message_of<PeerLost>(errors[other]),
                AllOf(HasSubstr("worker 0 ("), HasSubstr("it ended its part early")));
  }
  EXPECT_LT(noticed.load() - thrown.load(), std::chrono::milliseconds(1500));
}

TEST(WorkerFailures, NameWorkerZeroThatEndsWhileOthersWaitBetweenRuns) {
  expect_early_end_of_worker_zero([](WorkerGroup& group, WorkerReplicas&) { group.gather("still there"); });
}

TEST(WorkerFailures, NameWorkerZeroThatEndsWhileOthersWaitInARun) {
  expect_early_end_of_worker_zero([](WorkerGroup&, WorkerReplicas& replicas) {
    replicas.run([](int, c10d::Backend& backend) { sum_of_three(backend); });
  });
}

TEST(WorkerFailures, NameWorkerZeroThatEndsWhileOthersConnect) {
  expect_early_end_of_worker_zero([](WorkerGroup& group, WorkerReplicas&) {
    group.open_channel("another")->exchange("first", nullptr);  // exchanges connect only now
  });
}

/// The error of each replica in a run that continues regardless, so that only the sum reports it.
std::vector<std::exception_ptr> errors_in_a_run(const std::vector<int>& num_replicas,
                                                const std::function<void(int, c10d::Backend&)>& function) {
  std::vector<std::exception_ptr> errors(4);
  run_workers_soon(num_replicas, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([&](int replica, c10d::Backend& backend) {
      try {
        function(replica, backend);
      } catch (...) {
        errors[static_cast<size_t>(replica)] = std::current_exception();
      }
    });
    std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  return errors;
}

TEST(WorkerFailures, OfASumsPartReachAllReplicasOfAllWorkers) {
  const auto errors = errors_in_a_run({1, 2, 1}, [](int, c10d::Backend& backend) {
    std::vector<at::Tensor> values{at::zeros({3}, at::kFloat8_e5m2)};  // cannot be summed
    backend.allreduce(values)->wait();
  });
  for (const size_t local : {1, 2})
    EXPECT_THAT(message_of<c10::Error>(errors[local]), HasSubstr("Float8_e5m2"));
  for (const size_t other : {0, 3}) {
    if (tested_transport() == WorkerTransport::kGloo) {
      EXPECT_THAT(message_of<PeerLost>(errors[other]),
                  AllOf(HasSubstr("worker 1 ("), HasSubstr("Float8_e5m2")));
    } else {  // a worker that has nothing to sum by itself may refuse it before it hears of worker 1
      EXPECT_THAT(message_of<std::exception>(errors[other]), HasSubstr("Float8_e5m2"));
    }
  }
}

TEST(WorkerFailures, OfTheCopiesBehindASumReachAllReplicasOfAllWorkers) {
  const auto errors = errors_in_a_run({1, 2, 1}, [](int replica, c10d::Backend& backend) {
    // The sum is made and sent, but replica 2 cannot copy it into its tensor.
    std::vector<at::Tensor> values{replica == 2 ? at::ones({1}).expand({3}) : at::ones({3})};
    backend.allreduce(values)->wait();
    std::vector<at::Tensor> next{at::ones({3})};
    backend.allreduce(next)->wait();
  });
  for (const size_t local : {1, 2})
    EXPECT_THAT(message_of<c10::Error>(errors[local]), HasSubstr("single memory location"));
  for (const size_t other : {0, 3})
    EXPECT_THAT(message_of<PeerLost>(errors[other]),
                AllOf(HasSubstr("worker 1 ("), HasSubstr("single memory location")));
}

}  // namespace
}  // namespace lockstep
