#include "lockstep/runtime/replicas/internal/replica_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <barrier>
#include <set>
#include <thread>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

void ignore_failure(int, const std::exception_ptr&) {}

TEST(ReplicaThreads, RunAtTheSameTimeEachInItsOwnThreadThatStaysTheSame) {
  constexpr int kReplicas = 4;
  ReplicaThreads threads(kReplicas, 1);
  std::vector<std::thread::id> first(kReplicas), second(kReplicas);
  std::barrier everyone(kReplicas);  // passes only if all run at once
  threads.run(
      [&](int replica) {
        everyone.arrive_and_wait();
        first[static_cast<size_t>(replica)] = std::this_thread::get_id();
        EXPECT_TRUE(threads.contains_current_thread());
      },
      ignore_failure);
  threads.run([&](int replica) { second[static_cast<size_t>(replica)] = std::this_thread::get_id(); },
              ignore_failure);
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 4U);
  EXPECT_FALSE(threads.contains_current_thread());
}

TEST(ReplicaThreads, DoWorkOfTheHostInTheSameThreadsAndKeepItsErrors) {
  constexpr int kReplicas = 3;
  ReplicaThreads threads(kReplicas, 1);
  std::vector<std::thread::id> first(kReplicas), second(kReplicas);
  threads.run([&](int replica) { first[static_cast<size_t>(replica)] = std::this_thread::get_id(); },
              ignore_failure);
  std::barrier everyone(kReplicas);  // passes only if all run at once
  const auto errors = threads.run_on_host([&](int replica) {
    everyone.arrive_and_wait();
    second[static_cast<size_t>(replica)] = std::this_thread::get_id();
    if (replica == 1) throw std::domain_error("planted");
  });
  EXPECT_EQ(first, second);
  EXPECT_FALSE(errors[0]);
  EXPECT_THROW(std::rethrow_exception(errors[1]), std::domain_error);
  EXPECT_FALSE(errors[2]);
}

TEST(ReplicaThreads, KeepToTheirCpus) {
  const Cpus all = cpus_of_this_thread();
  ReplicaThreads threads(2, 1, {}, {{all.back()}, {}});
  std::vector<Cpus> used(2);
  threads.run([&](int replica) { used[static_cast<size_t>(replica)] = cpus_of_this_thread(); },
              ignore_failure);
  EXPECT_EQ(used[0], Cpus{all.back()});
  EXPECT_EQ(used[1], all);
}

TEST(ReplicaThreads, HaveTheirOwnNumberOfIntraOpThreadsAndChangeNobodyElses) {
  const auto in_a_new_thread = [] {
    int count = 0;
    std::thread([&] { count = at::get_num_threads(); }).join();
    return count;
  };
  const IntraOpThreadsGuard restore(3);
  ReplicaThreads threads(2, 5);
  threads.run([](int) { EXPECT_EQ(at::get_num_threads(), 5); }, ignore_failure);
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_EQ(in_a_new_thread(), 3);
}

TEST(ReplicaThreads, KeepEveryErrorAndReportItFromTheFailingThread) {
  ReplicaThreads threads(3, 1);
  std::vector<std::thread::id> ids(3), reporters(3);
  const auto errors = threads.run(
      [&](int replica) {
        ids[static_cast<size_t>(replica)] = std::this_thread::get_id();
        if (replica != 1) throw std::domain_error("replica " + std::to_string(replica));
      },
      [&](int replica, const std::exception_ptr& error) {
        EXPECT_TRUE(error != nullptr);
        reporters[static_cast<size_t>(replica)] = std::this_thread::get_id();
      });
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_EQ(message_of<std::domain_error>(errors[0]), "replica 0");
  EXPECT_EQ(errors[1], nullptr);
  EXPECT_EQ(message_of<std::domain_error>(errors[2]), "replica 2");
  EXPECT_EQ(reporters[0], ids[0]);
  EXPECT_EQ(reporters[1], std::thread::id());
  EXPECT_EQ(reporters[2], ids[2]);
  for (const auto& error : threads.run([](int) {}, ignore_failure)) EXPECT_EQ(error, nullptr);
}

TEST(ReplicaThreads, TakeOverTheCallersThreadStateAndNothingElse) {
  ReplicaThreads threads(2, 1);
  {
    const torch::NoGradGuard no_grad;
    threads.run([](int) { EXPECT_FALSE(torch::GradMode::is_enabled()); }, ignore_failure);
  }
  threads.run(
      [](int) {
        EXPECT_TRUE(torch::GradMode::is_enabled());
        torch::GradMode::set_enabled(false);  // must not outlive this run
      },
      ignore_failure);
  threads.run([](int) { EXPECT_TRUE(torch::GradMode::is_enabled()); }, ignore_failure);
}

TEST(ReplicaThreads, UnderTheCallersAutocastEveryRunComputesWithTheWeightsThatThereAre) {
  ReplicaThreads threads(2, 1);
  const auto weight = torch::ones({4, 4}).requires_grad_();
  const AutocastGuard cast(torch::kCPU, torch::kBFloat16);
  for (const float value : {1.F, 2.F}) {
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(value);
    }
    std::vector<torch::Tensor> results(2);
    threads.run(
        [&](int replica) {
          results[static_cast<size_t>(replica)] = torch::mm(torch::ones({1, 4}), weight);
        },
        [](int, const std::exception_ptr&) {});
    for (const auto& result : results) {
      EXPECT_EQ(result.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(result[0][0].item<float>(), 4 * value);
    }
  }
}

TEST(ReplicaThreads, BackwardRunsInTheReplicasOwnThread) {
  ReplicaThreads threads(3, 1);
  threads.run(
      [](int) {
        auto x = torch::ones({2}).requires_grad_();
        std::thread::id seen;
        x.register_hook([&](const torch::Tensor& gradient) {
          seen = std::this_thread::get_id();
          return gradient;
        });
        (x * 2).sum().backward();
        EXPECT_EQ(seen, std::this_thread::get_id());
      },
      ignore_failure);
}

TEST(ReplicaThreads, ConcurrentRunsTakeTurns) {
  ReplicaThreads threads(2, 1);
  int inside = 0;  // unguarded: two runs at once would lose counts
  const auto call_often = [&] {
    for (int i = 0; i < 100; ++i) {
      threads.run(
          [&](int replica) {
            if (replica == 0) ++inside;
          },
          ignore_failure);
    }
  };
  std::thread other(call_often);
  call_often();
  other.join();
  EXPECT_EQ(inside, 200);
}

}  // namespace
}  // namespace lockstep
