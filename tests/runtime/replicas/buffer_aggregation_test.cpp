#include "lockstep/runtime/replicas/buffer_aggregation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// A module with a buffer for each rule.
struct CountersImpl : torch::nn::Cloneable<CountersImpl>, AggregatesBuffers {
  CountersImpl() { reset(); }
  void reset() override {
    seen = register_buffer("seen", torch::zeros({2}, torch::kLong));
    first = register_buffer("first", torch::zeros({}));
    step = register_buffer("step", torch::zeros({}, torch::kLong));
    average = register_buffer("average", torch::zeros({}));
  }
  BufferAggregation buffer_aggregation(const std::string& name) const override {
    if (name == "seen") return BufferAggregation::kSum;
    if (name == "first") return BufferAggregation::kFirstReplica;
    return name == "step" ? BufferAggregation::kSame : BufferAggregation::kMean;
  }

  torch::Tensor seen, first, step, average;
};

struct NetImpl : torch::nn::Module {
  NetImpl() { register_module("counters", counters), register_module("norm", norm); }
  std::shared_ptr<CountersImpl> counters = std::make_shared<CountersImpl>();
  torch::nn::BatchNorm1d norm{3};
};

std::vector<ModulePointer> pointers(const std::vector<std::shared_ptr<NetImpl>>& nets) {
  return {nets.begin(), nets.end()};
}

/// Replica r has seen [r + 1, 10 (r + 1)] and has r in its other buffers, except those that agree.
std::vector<std::shared_ptr<NetImpl>> three_nets() {
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int replica = 0; replica < 3; ++replica) {
    auto& net = *nets.emplace_back(std::make_shared<NetImpl>());
    net.counters->seen.copy_(torch::tensor({replica + 1, 10 * (replica + 1)}));
    net.counters->first.fill_(replica + 7);
    net.counters->step.fill_(5);
    net.counters->average.fill_(replica * 0.5);
    net.norm->running_mean.fill_(1.5 * replica);
    net.norm->num_batches_tracked.fill_(replica + 4);
  }
  return nets;
}

TEST(BufferAggregationTest, ListsTheRulesByFullNameAndTheMeanForModulesThatDeclareNone) {
  EXPECT_THAT(buffer_aggregations(NetImpl()),
              ElementsAre(Pair("counters.average", BufferAggregation::kMean),
                          Pair("counters.first", BufferAggregation::kFirstReplica),
                          Pair("counters.seen", BufferAggregation::kSum),
                          Pair("counters.step", BufferAggregation::kSame),
                          Pair("norm.num_batches_tracked", BufferAggregation::kMean),
                          Pair("norm.running_mean", BufferAggregation::kMean),
                          Pair("norm.running_var", BufferAggregation::kMean)));
  EXPECT_THAT(summed_buffers(NetImpl()), ElementsAre("counters.seen"));
}

TEST(BufferAggregationTest, CombinesEachBufferByItsRule) {
  const auto nets = three_nets();
  aggregate_buffers(pointers(nets));
  for (const auto& net : nets) {
    EXPECT_EQ(net->counters->first.item<double>(), 7);
    EXPECT_EQ(net->counters->step.item<int64_t>(), 5);
    EXPECT_EQ(net->counters->average.item<double>(), 0.5);
    EXPECT_TRUE(net->norm->running_mean.eq(1.5).all().item<bool>());
    EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 4) << "an integer has replica 0's value";
  }
}

TEST(BufferAggregationTest, ASumStaysTheSameHoweverOftenItIsRead) {
  const auto nets = three_nets();
  for (int time = 0; time < 3; ++time) {
    aggregate_buffers(pointers(nets));
    EXPECT_TRUE(nets[0]->counters->seen.equal(torch::tensor({6, 60})));
    for (const int other : {1, 2}) EXPECT_TRUE(nets[other]->counters->seen.equal(torch::tensor({0, 0})));
  }
  nets[2]->counters->seen += 1;
  aggregate_buffers(pointers(nets));
  EXPECT_TRUE(nets[0]->counters->seen.equal(torch::tensor({7, 61})));
}

TEST(BufferAggregationTest, ReadsTheReplicasOfOtherProcesses) {
  auto nets = three_nets();
  const auto of_process_0 = std::vector{nets[0]};
  const auto of_process_1 = std::vector{nets[1], nets[2]};
  const auto values = [](const std::vector<std::shared_ptr<NetImpl>>& local) {
    std::vector<at::Tensor> buffers;
    for (const auto& net : local)
      for (const auto& buffer : net->buffers()) buffers.push_back(buffer.clone());
    return buffers;
  };
  const auto everywhere = std::vector{values(of_process_0), values(of_process_1)};
  const auto gather = [&](const std::vector<at::Tensor>&) { return everywhere; };
  aggregate_buffers(pointers(of_process_0), {.first_replica = 0, .gather_tensors = gather});
  aggregate_buffers(pointers(of_process_1), {.first_replica = 1, .gather_tensors = gather});
  EXPECT_TRUE(nets[0]->counters->seen.equal(torch::tensor({6, 60})));
  for (const int other : {1, 2}) EXPECT_TRUE(nets[other]->counters->seen.equal(torch::tensor({0, 0})));
  for (const auto& net : nets) {
    EXPECT_EQ(net->counters->average.item<double>(), 0.5);
    EXPECT_EQ(net->counters->first.item<double>(), 7);
  }
}

// The values that tf.Variable reads in TensorFlow 2.21 with synchronization ON_READ and the aggregations SUM,
// MEAN and ONLY_FIRST_REPLICA, after each of two replicas r has added 2 r + 1 twice.
TEST(BufferAggregationTest, ReadsWhatTensorFlowReads) {
  for (const auto dtype : {torch::kFloat, torch::kLong}) {
    const std::vector<at::Tensor> values{torch::full({}, 2, dtype), torch::full({}, 6, dtype)};
    const auto read = [&](BufferAggregation rule) {
      return aggregate_values("x", rule, values).item<double>();
    };
    EXPECT_EQ(read(BufferAggregation::kSum), 8);
    EXPECT_EQ(read(BufferAggregation::kFirstReplica), 2);
    // TensorFlow refuses the mean of integers. Lockstep reads those of replica 0.
    EXPECT_EQ(read(BufferAggregation::kMean), dtype == torch::kFloat ? 4 : 2);
  }
}

TEST(BufferAggregationTest, NamesTheBufferAndReplicaIfValuesThatShouldBeTheSameDiffer) {
  const auto nets = three_nets();
  nets[2]->counters->step.fill_(6);
  EXPECT_THAT(message_of<InconsistentReplicas>([&] { aggregate_buffers(pointers(nets)); }),
              AllOf(HasSubstr("'counters.step'"), HasSubstr("replica 2 has another value than replica 0")));
}

TEST(BufferAggregationTest, SumsInTheWidestTypeAndKeepsTheBuffersOwn) {
  const auto sum = [](const std::vector<at::Tensor>& values) {
    return aggregate_values("x", BufferAggregation::kSum, values);
  };
  // Float32 would lose each 1 that is added to 2^24.
  std::vector<at::Tensor> floats{torch::full({}, 16777216.F)};
  for (int i = 0; i < 4; ++i) floats.push_back(torch::ones({}));
  EXPECT_TRUE(sum(floats).equal(torch::full({}, 16777220.F)));
  EXPECT_TRUE(sum({torch::tensor(3, torch::kInt), torch::tensor(4, torch::kInt)})
                  .equal(torch::tensor(7, torch::kInt)));
  EXPECT_TRUE(sum({torch::tensor(false), torch::tensor(true)}).equal(torch::tensor(true)));
}

TEST(BufferAggregationTest, CountsABufferWithTwoNamesOnce) {
  struct TwoNamesImpl : torch::nn::Module, AggregatesBuffers {
    TwoNamesImpl() {
      seen = register_buffer("seen", torch::zeros({}, torch::kLong));
      register_buffer("again", seen);
    }
    BufferAggregation buffer_aggregation(const std::string&) const override {
      return BufferAggregation::kSum;
    }
    torch::Tensor seen;
  };
  std::vector<ModulePointer> modules;
  for (int replica = 0; replica < 2; ++replica) {
    auto module = std::make_shared<TwoNamesImpl>();
    module->seen.fill_(replica + 1);
    modules.push_back(module);
  }
  for (int time = 0; time < 2; ++time) {
    aggregate_buffers(modules);
    EXPECT_EQ(modules[0]->buffers()[0].item<int64_t>(), 3);
    EXPECT_EQ(modules[1]->buffers()[0].item<int64_t>(), 0);
  }
}

TEST(BufferAggregationTest, ANanIsTheSameAsANan) {
  const auto nan = torch::tensor({1.0, std::nan("")});
  EXPECT_NO_THROW(aggregate_values("x", BufferAggregation::kSame, {nan, nan.clone()}));
  EXPECT_THROW(aggregate_values("x", BufferAggregation::kSame, {nan, torch::tensor({1.0, 2.0})}),
               InconsistentReplicas);
}

TEST(BufferAggregationTest, CopyingAModulesStateLeavesTheOthersTheirPartsOfSums) {
  const auto nets = three_nets();
  copy_module_state(pointers(nets), 1);
  EXPECT_TRUE(nets[0]->counters->seen.equal(torch::tensor({1, 10})));
  EXPECT_TRUE(nets[2]->counters->seen.equal(torch::tensor({3, 30})));
  EXPECT_EQ(nets[2]->counters->first.item<double>(), 8);
}

}  // namespace
}  // namespace lockstep
