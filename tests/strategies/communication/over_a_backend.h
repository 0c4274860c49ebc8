#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/one_device_equivalence.h"

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// A strategy over the fake, and one over LocalBackend to compare with.
class OverABackend : public testing::Test {
 protected:
  static constexpr int kReplicas = 3;

  static StrategyOptions options(std::shared_ptr<CrossDeviceOps> ops) {
    return {.cross_device_ops = std::move(ops),
            .intra_op_threads = 1,
            .seed = 3,
            .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256},
            .timeout = std::chrono::seconds(20)};
  }

  using Function = std::function<Tensors(ReplicaContext&)>;

  /// Returns both strategies' results, which must be bit-equal on every replica.
  std::vector<torch::Tensor> expect_as_local(const Function& fn) {
    const auto results = strategy_.run(fn).local_values();
    const auto expected = local_.run(fn).local_values();
    for (size_t replica = 0; replica < results.size(); ++replica)
      EXPECT_TRUE(bit_equal(results[replica], expected[replica])) << "replica " << replica;
    return results[0];
  }

  std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>();
  MirroredStrategy strategy_{cpu_devices(kReplicas),
                             options(std::make_shared<BackendAllReduce>("FakeNccl", world_->factory()))};
  MirroredStrategy local_{cpu_devices(kReplicas), options(nullptr)};
};

}  // namespace lockstep
