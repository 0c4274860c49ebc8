// Collectives along the axes of a mesh, on replicas of one process and of several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The replicas that communicate with one replica along an axis, by the definition of a mesh.
std::vector<int> peers_of(const Mesh& mesh, int replica, size_t axis) {
  std::vector<int> peers;
  for (int other = 0; other < mesh.size(); ++other) {
    auto expected = mesh.coordinates(replica);
    expected[axis] = mesh.coordinates(other)[axis];
    if (mesh.coordinates(other) == expected) peers.push_back(other);
  }
  return peers;
}

/// Calls each collective along each axis of the replica's mesh. Gloo takes no messages between workers.
void expect_collectives_along_axes(ReplicaContext& replica, const Mesh& mesh, bool with_messages = true) {
  const int own = replica.replica_id();
  const auto numbers = torch::dtype(torch::kDouble).device(replica.device());
  const auto indices = torch::dtype(torch::kLong).device(replica.device());
  for (size_t i = 0; i < mesh.axes().size(); ++i) {
    ReplicaAxis& axis = replica.axis(mesh.axes()[i].name);
    const auto peers = peers_of(mesh, own, i);
    const int64_t size = axis.size();
    SCOPED_TRACE("replica " + std::to_string(own) + " on axis " + mesh.axes()[i].name);
    ASSERT_EQ(size, static_cast<int64_t>(peers.size()));
    ASSERT_EQ(peers.at(static_cast<size_t>(axis.index())), own);
    double sum = 0;
    for (const int peer : peers) sum += peer + 1;
    const auto value = torch::full({3}, own + 1, numbers.requires_grad(true));
    const auto total = axis.all_reduce(ReduceOp::kSum, value);
    EXPECT_TRUE(total.eq(sum).all().item<bool>()) << total;
    total.sum().backward();  // an all-reduce of ones
    EXPECT_TRUE(value.grad().eq(static_cast<double>(size)).all().item<bool>());
    EXPECT_DOUBLE_EQ(axis.all_reduce(ReduceOp::kMean, value.detach())[0].item<double>(), sum / size);
    const auto gathered = axis.all_gather(torch::full({1}, own, indices));
    EXPECT_TRUE(
        torch::equal(gathered, torch::tensor(std::vector<int64_t>(peers.begin(), peers.end()), indices)));
    // Row r of the sum is that of all peers' rows r.
    const auto rows = torch::arange(size * 2, numbers).reshape({size, 2}) * (own + 1);
    const auto part = axis.reduce_scatter(ReduceOp::kSum, rows);
    EXPECT_TRUE(torch::equal(part, (torch::arange(2, numbers) + 2 * axis.index()).unsqueeze(0) * sum));
    const auto moved = axis.all_to_all(torch::full({size}, own, indices));
    EXPECT_TRUE(torch::equal(moved, gathered));
    const auto copied = torch::full({2}, own, indices);
    axis.broadcast_(copied, static_cast<int>(size) - 1);
    EXPECT_EQ(copied[0].item<int64_t>(), peers.back());
    EXPECT_EQ(axis.sum_on_host(own + 1), static_cast<int64_t>(sum));
    if (size < 2 || !with_messages) continue;
    const int next = (axis.index() + 1) % axis.size();
    const int previous = (axis.index() + axis.size() - 1) % axis.size();
    axis.send(torch::full({1}, own, indices), next);
    EXPECT_EQ(axis.receive(previous, {1}, torch::kLong).item<int64_t>(),
              peers[static_cast<size_t>(previous)]);
  }
}

class StrategyAxes : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Meshes, StrategyAxes,
                         testing::Values("data=4", "data=2,shard=2", "shard=4,data=1", "a=1,b=2,c=1,d=2"));

TEST_P(StrategyAxes, ReachTheReplicasOfOneProcess) {
  const Mesh mesh = parse_mesh(GetParam());
  for (const std::string name : {"hierarchical_copy", "reduction_to_one_device"}) {
    MirroredStrategy strategy(cpu_devices(4),
                              {.cross_device_ops = make_cross_device_ops(name), .mesh = mesh});
    EXPECT_EQ(strategy.mesh(), mesh);
    for (int run = 0; run < 2; ++run)
      strategy.run([&](ReplicaContext& replica) { expect_collectives_along_axes(replica, mesh); });
  }
}

TEST_P(StrategyAxes, ReachTheReplicasOfAllWorkers) {
  const Mesh mesh = parse_mesh(GetParam());
  for (const auto& layout : {std::vector{2, 2}, std::vector{1, 1, 1, 1}, std::vector{1, 3}}) {
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          for (int run = 0; run < 2; ++run)
            strategy.run([&](ReplicaContext& replica) { expect_collectives_along_axes(replica, mesh); });
        },
        [&](int, WorkerSetUp& set_up) { set_up.options.mesh = mesh; }));
  }
}

TEST_P(StrategyAxes, ReachTheReplicasOfAllWorkersOverGloo) {
  const Mesh mesh = parse_mesh(GetParam());
  expect_no_worker_failed(run_strategies(
      {1, 2, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        strategy.run([&](ReplicaContext& replica) {
          expect_collectives_along_axes(replica, mesh, /*with_messages=*/false);
        });
      },
      [&](int, WorkerSetUp& set_up) {
        set_up.options.mesh = mesh;
        set_up.options.communication.implementation = CommunicationImplementation::kRing;
      }));
}

TEST(StrategyAxesTest, AreDataAloneWithoutAMesh) {
  MirroredStrategy strategy(cpu_devices(2));
  EXPECT_EQ(strategy.mesh(), (Mesh{{"data", 2}}));
  EXPECT_THAT(strategy.describe(), testing::Not(HasSubstr("mesh")));
  strategy.run([](ReplicaContext& replica) {
    EXPECT_EQ(replica.axis("data").all_reduce(ReduceOp::kSum, torch::ones({})).item<double>(), 2);
    EXPECT_THAT(message_of<InvalidArgument>([&] { replica.axis("shard"); }),
                HasSubstr("an axis of the mesh (data), but got 'shard'"));
  });
}

TEST(StrategyAxesTest, HavePositionsInAScopeButNoCollectives) {
  MirroredStrategy strategy(cpu_devices(4), {.mesh = {{"data", 2}, {"shard", 2}}});
  EXPECT_THAT(strategy.describe(), HasSubstr(", mesh data=2,shard=2"));
  const auto values = strategy.scope([](ReplicaContext& replica) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { replica.axis("shard").sum_on_host(1); }),
                HasSubstr("not available in scope"));
    return 10 * replica.axis("data").index() + replica.axis("shard").index();
  });
  EXPECT_EQ(values.local_values(), (std::vector{0, 1, 10, 11}));
}

TEST(StrategyAxesTest, RefuseAMeshOfAnotherNumberOfReplicas) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
                MirroredStrategy(cpu_devices(4), {.mesh = {{"data", 2}, {"shard", 3}}});
              }),
              AllOf(HasSubstr("which is 4"), HasSubstr("data=2,shard=2")));
}

TEST(StrategyAxesTest, NameTheReplicasThatDifferAndTheirAxis) {
  MirroredStrategy strategy(cpu_devices(4), {.mesh = {{"data", 2}, {"shard", 2}}});
  const auto message = message_of<CollectiveMismatch>([&] {
    strategy.run([](ReplicaContext& replica) {
      const int64_t size = replica.replica_id() == 3 ? 2 : 1;
      replica.axis("shard").all_reduce(ReduceOp::kSum, torch::ones({size}));
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("replica 2"), HasSubstr("replica 3"), HasSubstr("over the axis shard"),
                             testing::Not(HasSubstr("replica 0"))));
  const auto missing = message_of<CollectiveMismatch>([&] {
    strategy.run([](ReplicaContext& replica) {
      if (replica.replica_id() == 1) return;
      replica.axis("data").sum_on_host(1);
    });
  });
  EXPECT_THAT(missing, AllOf(HasSubstr("replica 3 called"), HasSubstr("over the axis data"),
                             HasSubstr("replica 1 returned without joining")));
  strategy.run([](ReplicaContext& replica) { EXPECT_EQ(replica.axis("data").sum_on_host(1), 2); });
}

TEST(StrategyAxesTest, ReleaseReplicasThatWaitOnAnotherAxis) {
  MirroredStrategy strategy(cpu_devices(4), {.mesh = {{"data", 2}, {"shard", 2}}});
  const auto message = message_of<std::runtime_error>([&] {
    strategy.run([](ReplicaContext& replica) {
      if (replica.replica_id() == 0) throw std::runtime_error("a bad example");
      replica.axis(replica.replica_id() == 1 ? "shard" : "data").sum_on_host(1);
    });
  });
  EXPECT_EQ(message, "a bad example");
  strategy.run([](ReplicaContext& replica) { EXPECT_EQ(replica.axis("shard").sum_on_host(1), 2); });
}

TEST(StrategyAxesTest, OverABackendConnectOneCommunicatorForEachGroup) {
  const auto world = std::make_shared<FakeNcclWorld>();
  const Mesh mesh{{"data", 2}, {"shard", 2}};
  {
    MirroredStrategy strategy(
        cpu_devices(4),
        {.cross_device_ops = std::make_shared<BackendAllReduce>("FakeNccl", world->factory()), .mesh = mesh});
    strategy.run([&](ReplicaContext& replica) { expect_collectives_along_axes(replica, mesh); });
    EXPECT_EQ(world->num_connected(), 5);  // of all replicas, and two for each axis
  }
  EXPECT_EQ(world->num_alive(), 0);
}

TEST(StrategyAxesTest, OverABackendReachTheReplicasOfAllWorkers) {
  const Mesh mesh{{"data", 2}, {"shard", 2}};
  for (const auto& layout : {std::vector{2, 2}, std::vector{1, 3}}) {
    const auto world = std::make_shared<FakeNcclWorld>();
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          strategy.run([&](ReplicaContext& replica) { expect_collectives_along_axes(replica, mesh); });
        },
        [&](int rank, WorkerSetUp& set_up) {
          set_up.options.mesh = mesh;
          set_up.options.cross_device_ops = std::make_shared<BackendAllReduce>("FakeNccl", world->factory());
          const int first = rank == 0 ? 0 : layout[0];
          const auto devices = cpu_devices(4);
          for (int i = 0; i < layout[static_cast<size_t>(rank)]; ++i)
            set_up.devices.push_back(devices[static_cast<size_t>(first + i)]);
        }));
    EXPECT_EQ(world->num_alive(), 0);
  }
}

TEST(StrategyAxesTest, WorkersMustAgreeOnTheMesh) {
  const auto errors = run_strategies(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int rank, WorkerSetUp& set_up) {
        set_up.options.mesh = {{rank == 0 ? "data" : "shard", 2}};
      });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("mesh"), HasSubstr("data=2"), HasSubstr("shard=2")));
}

}  // namespace
}  // namespace lockstep
