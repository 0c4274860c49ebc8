#include "lockstep/runtime/gradients/bucketed_all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kReplicas = 3;

/// Three parameters in their own order, one per bucket, and their sums.
struct Summed {
  explicit Summed(ReplicaBackends backends) : sums(buckets, std::move(backends)) {
    const std::vector<at::Tensor> parameters{torch::ones({2}).requires_grad_(),
                                             torch::ones({3}).requires_grad_(),
                                             torch::ones({1}).requires_grad_()};
    buckets.lay_out(parameters, {0, 1, 2}, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    sums.begin_step();
  }

  void arrive(size_t parameter, double value) {
    buckets.slot(parameter).fill_(value);
    sums.arrive(parameter, buckets.slot(parameter));
  }
  double value(size_t parameter) const { return buckets.slot(parameter).sum().item<double>(); }

  GradientBuckets buckets;
  BucketedAllReduce sums;
};

struct Launches {
  std::atomic<int> num_there{0};
  std::atomic<int> num_launched{0};
};

/// Counts launches, and checks that all replicas are there before one of its own.
class CountingBackend : public c10d::Backend {
 public:
  CountingBackend(c10::intrusive_ptr<c10d::Backend> inner, Launches& launches, bool checks)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        launches_(launches),
        checks_(checks) {}

  const std::string getBackendName() const override { return "counting"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override {
    if (checks_) {
      EXPECT_EQ(launches_.num_there, kReplicas) << "a launch of replica " << getRank();
    }
    ++launches_.num_launched;
    return inner_->allreduce(tensors, options);
  }

 private:
  const c10::intrusive_ptr<c10d::Backend> inner_;
  Launches& launches_;
  const bool checks_;
};

TEST(BucketedAllReduce, SumsEachBucketOverTheReplicas) {
  ReplicaGroup group(kReplicas);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    for (size_t i = 0; i < 3; ++i) step.arrive(i, rank + 1);
    EXPECT_EQ(step.sums.launch_full(), 3);
    EXPECT_EQ(step.sums.finish({}), 0);
    // 1 + 2 + 3 in each element.
    EXPECT_EQ(step.value(0), 12);
    EXPECT_EQ(step.value(1), 18);
    EXPECT_EQ(step.value(2), 6);
    EXPECT_THAT(step.sums.kinds(),
                ElementsAre(GradientKind::kDense, GradientKind::kDense, GradientKind::kDense));
  });
}

TEST(BucketedAllReduce, LaunchesAFullBucketOnlyWhenThoseBeforeItAreFull) {
  ReplicaGroup group(kReplicas);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    step.arrive(1, 1);
    EXPECT_EQ(step.sums.launch_full(), 0);
    EXPECT_FALSE(step.sums.has_left(1));
    step.arrive(0, 1);
    EXPECT_EQ(step.sums.launch_full(), 2);
    EXPECT_TRUE(step.sums.has_left(0));
    EXPECT_TRUE(step.sums.has_left(1));
    EXPECT_FALSE(step.sums.has_left(2));
    EXPECT_THAT(step.sums.arrivals(), ElementsAre(1, 0));
    EXPECT_EQ(step.sums.finish({}), 1);
  });
}

TEST(BucketedAllReduce, TellsWhatTheReplicasTogetherHave) {
  ReplicaGroup group(kReplicas);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    const auto sparse = at::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1}), {3});
    if (rank == 2) step.arrive(0, 5);            // only this replica has it
    if (rank == 0) step.sums.arrive(1, sparse);  // only this replica has it, as a sparse gradient
    EXPECT_EQ(step.sums.is_sparse(1), rank == 0);
    step.sums.launch_full();
    step.sums.finish({});
    EXPECT_THAT(step.sums.kinds(),
                ElementsAre(GradientKind::kDense, GradientKind::kSparse, GradientKind::kNone));
    EXPECT_EQ(step.value(0), 10);
  });
}

TEST(BucketedAllReduce, AWithdrawnGradientKeepsItsBucketBack) {
  ReplicaGroup group(1);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    step.arrive(0, 1);
    step.arrive(0, 1);  // counts once
    step.sums.withdraw(0);
    EXPECT_FALSE(step.sums.has_arrived(0));
    EXPECT_THAT(step.sums.arrivals(), IsEmpty());
    EXPECT_EQ(step.sums.launch_full(), 0);
    step.arrive(0, 2);
    EXPECT_EQ(step.sums.launch_full(), 1);
    step.sums.finish({});
    EXPECT_EQ(step.value(0), 4);
  });
}

TEST(BucketedAllReduce, BeginsEachStepWithNothingArrived) {
  ReplicaGroup group(kReplicas);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    for (int round = 1; round <= 3; ++round) {
      step.sums.begin_step();
      EXPECT_THAT(step.sums.arrivals(), IsEmpty());
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_FALSE(step.sums.has_arrived(i));
        EXPECT_FALSE(step.sums.has_left(i));
        EXPECT_FALSE(step.sums.is_sparse(i));
        EXPECT_FALSE(step.sums.mark(i).is_set());
        step.arrive(i, round);
      }
      EXPECT_EQ(step.sums.launch_full(), 3);
      step.sums.finish({});
      EXPECT_EQ(step.value(2), round * kReplicas);
    }
  });
}

TEST(BucketedAllReduce, KnowsAGradientAsItWasWhenItLeft) {
  ReplicaGroup group(1);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    const auto& slot = step.buckets.slot(1);
    step.arrive(1, 1);
    EXPECT_TRUE(step.sums.mark(1).is(slot));
    EXPECT_FALSE(step.sums.mark(1).is(slot.clone()));
    slot.mul_(3);
    EXPECT_EQ(step.sums.mark(1).writes_to(slot), 1);
    step.sums.finish({});
    EXPECT_EQ(step.sums.mark(1).writes_to(slot), 0) << "summing is no change of the gradient's own";
    slot.mul_(3);
    EXPECT_EQ(step.sums.mark(1).writes_to(slot), 1);
  });
}

TEST(BucketedAllReduce, RefusesSumsThatOnlySomeReplicasWantOnAllOfThem) {
  ReplicaGroup group(kReplicas);
  const auto errors = group.errors_of([&](int rank) {
    Summed step(group.backend(rank));
    step.arrive(0, 1);
    step.sums.finish({.is_wanted = rank != 1});
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<InvalidArgument>(error), HasSubstr("only replicas 0, 2 of 3"));
}

// NCCL's kernels occupy a GPU until all ranks have launched theirs. Whatever a replica does before it
// launches must not have to wait for that GPU.
TEST(BucketedAllReduce, LaunchesNothingBeforeAllReplicasAreThereIfAnyLaunchesTogether) {
  ReplicaGroup group(kReplicas);
  ReplicaGroup on_host(kReplicas);
  Launches launches;
  group.run([&](int rank) {
    // The last replica would not launch together: it takes part in the others' meeting all the same.
    const bool is_together = rank != kReplicas - 1;
    Summed step({c10::make_intrusive<CountingBackend>(group.backend(rank), launches, is_together),
                 on_host.backend(rank)});
    for (size_t i = 0; i < 3; ++i) step.arrive(i, rank + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
    ++launches.num_there;
    EXPECT_EQ(step.sums.finish({.launches_together = is_together}), 3);
    EXPECT_EQ(launches.num_launched, 3 * kReplicas) << "replica " << rank << " left before all had launched";
    EXPECT_EQ(step.value(0), 12);
  });
}

TEST(BucketedAllReduce, EndsSumsThatNobodyWants) {
  ReplicaGroup group(kReplicas);
  group.run([&](int rank) {
    Summed step(group.backend(rank));
    step.arrive(0, 1);
    step.sums.finish({.is_wanted = false});
    step.sums.begin_step();
    for (size_t i = 0; i < 3; ++i) step.arrive(i, 2);
    step.sums.launch_full();
    step.sums.finish({});
    EXPECT_EQ(step.value(0), 2 * 2 * kReplicas);
  });
}

}  // namespace
}  // namespace lockstep
