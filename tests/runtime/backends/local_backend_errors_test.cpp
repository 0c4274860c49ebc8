// Calls that a local backend refuses, and how it ends mismatched calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(LocalBackend, NamesOperationsAndShapesWhereTheyDiffer) {
  ReplicaGroup group(2);
  const auto sum = [&](int rank, at::Tensor tensor) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    group.backend(rank)->allreduce(tensors)->wait();
  };
  // The ranks differ in shape, dtype, operation or order.
  const auto mismatch_of = [&](const std::function<void(int)>& function) {
    std::vector<std::string> texts;
    for (const auto& error : group.errors_of(function))
      texts.push_back(message_of<CollectiveMismatch>(error));
    for (const auto& text : texts) {
      if (text.starts_with("collective #")) return text;
    }
    return texts[0] + "; " + texts[1];
  };
  std::string text = mismatch_of([&](int rank) { sum(rank, torch::zeros({2, rank + 3})); });
  EXPECT_THAT(text, HasSubstr("all_reduce sum Float[2,3]"));
  EXPECT_THAT(text, HasSubstr("all_reduce sum Float[2,4]"));
  text = mismatch_of([&](int rank) { sum(rank, torch::zeros({2}, rank == 0 ? at::kFloat : at::kDouble)); });
  EXPECT_THAT(text, HasSubstr("all_reduce sum Double[2]"));
  text = mismatch_of([&](int rank) {
    if (rank == 0) return sum(rank, torch::zeros({2}));
    std::vector<at::Tensor> tensors{torch::zeros({2})};
    group.backend(rank)->broadcast(tensors)->wait();
  });
  EXPECT_THAT(text, HasSubstr("broadcast from 0 Float[2]"));
  text = mismatch_of([&](int rank) {
    sum(rank, torch::zeros({rank + 1}));
    sum(rank, torch::zeros({2 - rank}));
  });
  EXPECT_THAT(text, HasSubstr("collective #0"));
  // The group is still usable.
  EXPECT_NO_THROW(group.run([&](int rank) { sum(rank, torch::zeros({2})); }));
}

TEST(LocalBackend, RefusesExtremesOfComplexNumbersAndMultipliesThem) {
  ReplicaGroup group(2);
  group.run([&](int rank) {
    std::vector<at::Tensor> values{torch::full({2}, c10::complex<double>(rank + 1, 1))};
    c10d::AllreduceOptions options;
    for (const auto op : {c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
      options.reduceOp = op;
      EXPECT_THROW(group.backend(rank)->allreduce(values, options), InvalidArgument);
    }
    options.reduceOp = c10d::ReduceOp::PRODUCT;
    group.backend(rank)->allreduce(values, options)->wait();
    // (1 + i) (2 + i)
    EXPECT_TRUE(values[0].eq(c10::complex<double>(1, 3)).all().item<bool>());
  });
}

TEST(LocalBackend, ReleasesTheOthersWhereOneThrowsOrReturnsEarly) {
  ReplicaGroup group(3);
  const auto sum = [&](int rank) {
    std::vector<at::Tensor> tensors{torch::ones({2})};
    group.backend(rank)->allreduce(tensors)->wait();
  };
  auto errors = group.errors_of([&](int rank) {
    if (rank == 1) throw std::domain_error("planted");
    sum(rank);
  });
  EXPECT_EQ(message_of<std::domain_error>(errors[1]), "planted");
  EXPECT_EQ(message_of<CollectiveAborted>(errors[0]), "another replica failed");
  EXPECT_EQ(message_of<CollectiveAborted>(errors[2]), "another replica failed");
  errors = group.errors_of([&](int rank) {
    if (rank != 1) sum(rank);
  });
  EXPECT_EQ(message_of<std::exception>(errors[1]), "no error");
  // The first of the two to wait learns the cause, and its failure may release the other.
  const auto cause = [](const std::exception_ptr& error) { return message_of<std::exception>(error); };
  EXPECT_THAT(cause(errors[0]) + cause(errors[2]), HasSubstr("but replica 1 returned without joining it"));
  EXPECT_NE(cause(errors[0]), "no error");
  EXPECT_NE(cause(errors[2]), "no error");
}

TEST(LocalBackend, GivesAReductionsTimeoutToItsWaiter) {
  ReplicaGroup group(2, LocalAlgorithm::kSplitOverReplicas);
  std::vector<at::Tensor> tensors{torch::ones({2})};
  auto work = group.backend(0)->allreduce(tensors);
  EXPECT_THROW(work->wait(std::chrono::milliseconds(20)), CollectiveAborted);
}

TEST(LocalBackend, RefusesWhatItCannotReduceGatherOrBroadcast) {
  ReplicaGroup group(2);
  std::vector<at::Tensor> integers{torch::ones({2}, at::kLong)};
  c10d::AllreduceOptions mean;
  mean.reduceOp = c10d::ReduceOp::AVG;
  EXPECT_THROW(group.backend(0)->allreduce(integers, mean), InvalidArgument);
  c10d::AllreduceOptions bits;
  bits.reduceOp = c10d::ReduceOp::BXOR;
  EXPECT_THROW(group.backend(0)->allreduce(integers, bits), InvalidArgument);
  c10d::BroadcastOptions from_nobody;
  from_nobody.rootRank = 2;
  EXPECT_THROW(group.backend(0)->broadcast(integers, from_nobody), InvalidArgument);
  std::vector<std::vector<at::Tensor>> outputs{{torch::empty({3}), torch::empty({3})}};
  // Inputs are neither broadcast nor converted silently.
  for (const auto& input : {torch::ones({1}), torch::ones({3}, at::kDouble)}) {
    std::vector<at::Tensor> inputs{input};
    EXPECT_THROW(group.backend(0)->allgather(outputs, inputs), InvalidArgument);
  }
  std::vector<at::Tensor> inputs{torch::ones({3})};
  outputs[0].pop_back();
  EXPECT_THROW(group.backend(0)->allgather(outputs, inputs), InvalidArgument);
}

TEST(LocalBackend, RefusesOneTensorThatSeveralReplicasReduceInPlace) {
  ReplicaGroup group(3);
  const at::Tensor shared = torch::ones({4});
  const auto errors = group.errors_of([&](int rank) {
    std::vector<at::Tensor> tensors{rank == 0 ? torch::ones({4}) : shared};
    group.backend(rank)->allreduce(tensors)->wait();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<InvalidArgument>(error), HasSubstr("replicas 1 and 2 gave the same memory"));
  }
}

}  // namespace
}  // namespace lockstep
