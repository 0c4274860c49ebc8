#include "lockstep/runtime/backends/internal/hierarchical_backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

/// The parameter is the number of replicas of each worker.
class HierarchicalBackendTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  int num_replicas() const {
    int total = 0;
    for (const int count : GetParam()) total += count;
    return total;
  }

  /// Runs `function(replica, backend)` on every replica of every worker.
  void run(const std::function<void(int, c10d::Backend&)>& function) {
    for (const auto& error : run_workers(GetParam(), [&](WorkerGroup& group) {
           WorkerReplicas replicas(group);
           replicas.run(function);
         }))
      EXPECT_EQ(message_of<std::exception>(error), "no error");
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, HierarchicalBackendTest,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3},
                                         std::vector{2, 1, 1}));

TEST_P(HierarchicalBackendTest, SumsOverAllReplicasOfAllWorkers) {
  const int total = num_replicas() * (num_replicas() + 1) / 2;
  run([&](int replica, c10d::Backend& backend) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kByte}) {
      std::vector<at::Tensor> values{at::full({3, 50}, replica + 1, dtype)};
      backend.allreduce(values)->wait();
      EXPECT_TRUE(values[0].eq(total).all().item<bool>()) << dtype << " " << values[0];
    }
  });
}

TEST_P(HierarchicalBackendTest, SumsListsOfDifferentDtypesShapesAndStrides) {
  const int total = num_replicas() * (num_replicas() + 1) / 2;
  run([&](int replica, c10d::Backend& backend) {
    // Larger than a part, so that the sum is cut; one transposed; one empty.
    std::vector<at::Tensor> values{at::full({100'000}, replica + 1, at::kFloat),
                                   at::full({4, 6}, replica + 1, at::kDouble).t(), at::zeros({0, 5}),
                                   at::full({7}, replica + 1, at::kFloat)};
    backend.allreduce(values)->wait();
    for (const auto& value : values) EXPECT_TRUE(value.eq(total).all().item<bool>());
  });
}

TEST_P(HierarchicalBackendTest, AveragesAndTakesExtremesOverAllReplicas) {
  run([&](int replica, c10d::Backend& backend) {
    const auto reduce = [&](c10d::ReduceOp op) {
      std::vector<at::Tensor> values{at::full({5}, replica + 1, at::kDouble)};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      backend.allreduce(values, options)->wait();
      return values[0][4].item<double>();
    };
    EXPECT_DOUBLE_EQ(reduce(c10d::ReduceOp::AVG), (num_replicas() + 1) / 2.0);
    EXPECT_EQ(reduce(c10d::ReduceOp::MAX), num_replicas());
    EXPECT_EQ(reduce(c10d::ReduceOp::MIN), 1);
  });
}

TEST_P(HierarchicalBackendTest, BroadcastsFromEachReplica) {
  run([&](int replica, c10d::Backend& backend) {
    for (int source = 0; source < num_replicas(); ++source) {
      std::vector<at::Tensor> values{at::full({3}, replica, at::kFloat),
                                     at::full({2, 2}, replica == source, at::kBool)};
      c10d::BroadcastOptions options;
      options.rootRank = source;
      backend.broadcast(values, options)->wait();
      EXPECT_TRUE(values[0].eq(source).all().item<bool>());
      EXPECT_TRUE(values[1].all().item<bool>());
    }
  });
}

TEST_P(HierarchicalBackendTest, GathersDifferentSizesInReplicaOrder) {
  run([&](int replica, c10d::Backend& backend) {
    std::vector<at::Tensor> inputs{at::full({replica, 2}, replica, at::kDouble)};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int other = 0; other < num_replicas(); ++other)
      outputs[0].push_back(at::empty({other, 2}, at::kDouble));
    backend.allgather(outputs, inputs)->wait();
    for (int other = 0; other < num_replicas(); ++other) {
      EXPECT_TRUE(outputs[0][static_cast<size_t>(other)].eq(other).all().item<bool>());
    }
  });
}

TEST_P(HierarchicalBackendTest, KeepsTheOrderOfManyCollectivesUnderWay) {
  run([&](int replica, c10d::Backend& backend) {
    std::vector<std::vector<at::Tensor>> values;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 50; ++i) {
      values.push_back({at::full({1000 + i}, replica + i, at::kFloat)});
      works.push_back(backend.allreduce(values.back()));
    }
    const int total = num_replicas() * (num_replicas() - 1) / 2;
    for (int i = 49; i >= 0; --i) {
      works[static_cast<size_t>(i)]->wait();
      EXPECT_TRUE(values[static_cast<size_t>(i)][0].eq(total + i * num_replicas()).all().item<bool>());
    }
    backend.barrier()->wait();
  });
}

TEST(HierarchicalBackend, GivesAllReplicasTheSameBits) {
  std::vector<at::Tensor> results(4);
  const auto errors = run_workers({2, 2}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([&](int replica, c10d::Backend& backend) {
      std::vector<at::Tensor> values{at::arange(10'000).to(at::kFloat).mul(0.1 * (replica + 1)).sin()};
      backend.allreduce(values)->wait();
      results[static_cast<size_t>(replica)] = values[0];
    });
  });
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  for (const auto& result : results) EXPECT_TRUE(result.equal(results[0]));
}

}  // namespace
}  // namespace lockstep
