// Reduce-scatters, all-to-alls and messages over the fake NCCL. All-reduces: backend_all_reduce_test.cpp.
#include <gmock/gmock.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/strategies/communication/over_a_backend.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Uneven parts are padded, and tensors that are not contiguous or complex are copied.
TEST_F(OverABackend, ReduceScattersAndAllToAllsTakeAnyShapesAndDtypes) {
  expect_as_local([](ReplicaContext& replica) {
    const double own = replica.replica_id() + 1;
    const auto numbers = torch::arange(28, torch::kDouble).view({7, 4}) * own;
    Tensors results{
        replica.reduce_scatter(ReduceOp::kSum, numbers),
        replica.reduce_scatter(ReduceOp::kMean, numbers.t(), -1),
        replica.reduce_scatter(ReduceOp::kSum, torch::full({3, 2}, own, torch::kComplexDouble)),
        replica.reduce_scatter(ReduceOp::kSum, torch::full({6}, replica.replica_id(), torch::kLong)),
        replica.all_to_all(torch::full({2, 3}, own), 1, 0)};
    Tensors values;
    for (int to = 0; to < kReplicas; ++to)
      values.push_back(torch::full({to, 2}, own + 10 * to, torch::kComplexFloat));
    for (const auto& value : replica.all_to_all(values)) results.push_back(value);
    const auto whole = torch::full({3, 5}, own);
    replica.reduce_scatter_(ReduceOp::kSum, whole[replica.replica_id()], whole);
    replica.all_gather_(whole, whole[replica.replica_id()]);
    results.push_back(whole);
    return results;
  });
}

TEST_F(OverABackend, AReduceScatterOfEqualPartsIsOneCallWithoutCopies) {
  const auto fn = [](ReplicaContext& replica) {
    return Tensors{replica.reduce_scatter(ReduceOp::kSum, torch::full({6, 4}, replica.replica_id() + 1.0))};
  };
  world_->clear_calls();
  EXPECT_TRUE(expect_as_local(fn)[0].eq(6).all().item<bool>());
  EXPECT_THAT(world_->calls(0), ElementsAre("reduce_scatter Float[24]"));
}

// The gradient of a gather is a reduce-scatter. A user's backend may offer only what gradients need.
TEST_F(OverABackend, ABackendWithoutReduceScatterSumsTheWhole) {
  world_->lacks_reduce_scatter = true;
  const auto fn = [](ReplicaContext& replica) {
    auto own = torch::full({replica.replica_id() + 1, 2}, 0.5 * replica.replica_id()).requires_grad_();
    const auto all = replica.all_gather(own);
    (all.pow(2) * (replica.replica_id() + 1)).sum().backward();
    return Tensors{all.detach(), own.grad(), replica.reduce_scatter(ReduceOp::kMean, torch::ones({4, 2}))};
  };
  world_->clear_calls();
  expect_as_local(fn);
  EXPECT_THAT(world_->calls(0),
              ElementsAre("all_gather Float[6]", "all_reduce Float[18]", "all_reduce Float[12]"));
}

TEST_F(OverABackend, MessagesGoBetweenTheReplicasOfOneProcess) {
  expect_as_local([](ReplicaContext& replica) {
    auto own = torch::full({2, 3}, replica.replica_id() + 1.0).requires_grad_();
    const int next = (replica.replica_id() + 1) % kReplicas;
    const int previous = (replica.replica_id() + kReplicas - 1) % kReplicas;
    const auto token = replica.send(own * own, next);
    const auto got = replica.receive(previous, {2, 3}, torch::requires_grad());
    (got.pow(2).sum() + token).backward();
    return Tensors{got.detach(), own.grad()};
  });
}

TEST_F(OverABackend, AReduceScatterThatOneReplicaLacksIsAMismatch) {
  const auto message = message_of<CollectiveMismatch>([&] {
    strategy_.run([](ReplicaContext& replica) {
      const auto values = torch::ones({6});
      if (replica.replica_id() == 1) {
        replica.all_reduce(ReduceOp::kSum, values);
      } else {
        replica.reduce_scatter(ReduceOp::kSum, values);
      }
    });
  });
  EXPECT_THAT(message, HasSubstr("reduce_scatter sum for each replica Float[2]"));
  EXPECT_THAT(message, HasSubstr("all_reduce sum Float[6]"));
}

}  // namespace
}  // namespace lockstep
