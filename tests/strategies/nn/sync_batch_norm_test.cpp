// SyncBatchNorm on replicas equals torch::nn::BatchNorm on one device with all of their examples: outputs,
// gradients and running statistics.
#include "lockstep/strategies/nn/sync_batch_norm.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using torch::nn::BatchNormOptions;

constexpr int64_t kChannels = 5;

/// One batch: an input that is far from normalised, the gradient of its output, and where it is cut.
struct Batch {
  torch::Tensor input;
  torch::Tensor gradient;
  std::vector<int64_t> shards;
};

/// The results of training on some batches, combined over all replicas.
struct Outcome {
  std::vector<torch::Tensor> outputs, input_gradients;      // for each batch
  std::vector<torch::Tensor> parameter_gradients, buffers;  // after all batches
};

/// The shape of a batch of `size`, and its memory format.
struct Layout {
  std::string name;
  std::vector<int64_t> pixels;
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;
};

std::ostream& operator<<(std::ostream& stream, const Layout& layout) {
  return stream << layout.name;
}

/// Two batches of 7, cut unevenly and partly into empty shards, and one of 2.
std::vector<Batch> three_batches(int replicas, const Layout& layout, at::ScalarType dtype) {
  torch::manual_seed(31);
  std::vector<Batch> batches;
  for (const auto& cuts : std::vector<std::vector<int64_t>>{{3, 4, 4}, {0, 5, 5}, {1, 1, 1}}) {
    Batch batch;
    int64_t size = batches.size() == 2 ? 2 : 7, begin = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      const int64_t end = replica + 1 < replicas ? cuts[static_cast<size_t>(replica)] : size;
      batch.shards.push_back(end - begin);
      begin = end;
    }
    std::vector<int64_t> shape{size, kChannels};
    shape.insert(shape.end(), layout.pixels.begin(), layout.pixels.end());
    std::vector<int64_t> channel(shape.size(), 1);
    channel[1] = kChannels;
    const auto wide = torch::randn(shape, torch::kDouble) * torch::linspace(0.5, 4, kChannels).view(channel) +
                      torch::linspace(-2, 3, kChannels).view(channel);
    batch.input = wide.to(dtype).contiguous(layout.format);
    batch.gradient = torch::randn(shape, torch::kDouble).to(dtype).contiguous(layout.format);
    batches.push_back(batch);
  }
  return batches;
}

/// Gives a module parameters other than one and zero.
template <typename Module>
void set_parameters(Module& module, at::ScalarType dtype) {
  module->to(dtype);
  const torch::NoGradGuard no_grad;
  if (!module->weight.defined()) return;
  module->weight.copy_(torch::linspace(0.5, 1.5, kChannels));
  module->bias.copy_(torch::linspace(-1, 1, kChannels));
}

std::vector<torch::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : module.parameters()) gradients.push_back(parameter.grad().cpu().clone());
  return gradients;
}

std::vector<torch::Tensor> defined_buffers(const torch::nn::Module& module) {
  std::vector<torch::Tensor> buffers;
  for (const auto& buffer : module.buffers()) {
    if (buffer.defined()) buffers.push_back(buffer.cpu().clone());
  }
  return buffers;
}

/// The oracle: LibTorch's module.
template <typename Module>
Outcome with_torch(const BatchNormOptions& options, const std::vector<Batch>& batches, at::ScalarType dtype) {
  Module module(options);
  set_parameters(module, dtype);
  Outcome outcome;
  for (const auto& batch : batches) {
    const auto input = batch.input.detach().requires_grad_();
    outcome.outputs.push_back(module->forward(input));
    outcome.outputs.back().backward(batch.gradient);
    outcome.input_gradients.push_back(input.grad());
  }
  outcome.parameter_gradients = gradients_of(*module);
  outcome.buffers = defined_buffers(*module);
  return outcome;
}

Outcome on_one_device(const BatchNormOptions& options, const std::vector<Batch>& batches,
                      at::ScalarType dtype) {
  const int64_t dimensions = batches[0].input.dim();
  if (dimensions == 5) return with_torch<torch::nn::BatchNorm3d>(options, batches, dtype);
  if (dimensions == 4) return with_torch<torch::nn::BatchNorm2d>(options, batches, dtype);
  return with_torch<torch::nn::BatchNorm1d>(options, batches, dtype);
}

/// The same on replicas. Expects the replicas' state to be bit-equal, and outputs in the inputs' layout.
Outcome on_replicas(int replicas, const BatchNormOptions& options, const std::vector<Batch>& batches,
                    at::ScalarType dtype) {
  MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1});
  auto modules = strategy.scope([&](ReplicaContext&) {
    SyncBatchNorm module(options);
    set_parameters(module, dtype);
    return module;
  });
  Outcome outcome;
  for (const auto& batch : batches) {
    const auto shards_of = [&](const torch::Tensor& whole) {
      const auto pieces = whole.split_with_sizes(batch.shards);
      return strategy.distribute_values_from_function([&](const ValueContext& context) {
        const auto replica = static_cast<size_t>(context.replica_id_in_sync_group);
        return pieces[replica].detach().to(strategy.devices()[replica].torch_device());
      });
    };
    auto inputs = shards_of(batch.input);
    auto gradients = shards_of(batch.gradient);
    const auto outputs = strategy.run(
        [](ReplicaContext&, SyncBatchNorm& own, torch::Tensor& input, torch::Tensor& gradient) {
          const auto output = own->forward(input.requires_grad_());
          output.backward(gradient);
          EXPECT_EQ(output.strides(), input.strides());
          return output.detach();
        },
        modules, inputs, gradients);
    outcome.outputs.push_back(torch::cat(values_of(outputs.local_values())));
    std::vector<torch::Tensor> input_gradients;
    for (const auto& input : inputs.local_values()) input_gradients.push_back(input.grad().cpu());
    outcome.input_gradients.push_back(torch::cat(input_gradients));
  }
  outcome.buffers = defined_buffers(*modules.primary());
  outcome.parameter_gradients = gradients_of(*modules.primary());
  for (size_t replica = 1; replica < modules.local_values().size(); ++replica) {
    const auto& module = *modules.local_values()[replica];
    EXPECT_TRUE(bit_equal(defined_buffers(module), outcome.buffers)) << "replica " << replica;
    const auto own = gradients_of(module);
    for (size_t i = 0; i < own.size(); ++i) outcome.parameter_gradients[i] += own[i];
  }
  return outcome;
}

/// Differences are relative to the largest expected value if that is above `scale`.
void expect_near(const std::vector<torch::Tensor>& given, const std::vector<torch::Tensor>& expected,
                 double tolerance, const char* what, double scale = 1) {
  ASSERT_EQ(given.size(), expected.size()) << what;
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(given[i].sizes(), expected[i].sizes()) << what;
    EXPECT_EQ(given[i].scalar_type(), expected[i].scalar_type()) << what;
    const double largest = std::max(scale, expected[i].abs().max().item<double>());
    EXPECT_LE(largest_difference({given[i].to(torch::kDouble)}, {expected[i].to(torch::kDouble)}),
              tolerance * largest)
        << what << " " << i;
  }
}

void expect_near(const Outcome& given, const Outcome& expected, double tolerance) {
  expect_near(given.outputs, expected.outputs, tolerance, "outputs");
  expect_near(given.input_gradients, expected.input_gradients, tolerance, "input gradients");
  // Sums over all values of a channel; the terms are about one, and may cancel.
  double count = 0;
  for (const auto& output : expected.outputs) count += static_cast<double>(output.numel()) / kChannels;
  expect_near(given.parameter_gradients, expected.parameter_gradients, tolerance, "parameter gradients",
              count);
  expect_near(given.buffers, expected.buffers, tolerance, "running statistics");
}

void expect_one_devices_numbers(int replicas, const BatchNormOptions& options, const Layout& layout,
                                at::ScalarType dtype) {
  const auto batches = three_batches(replicas, layout, dtype);
  expect_near(on_replicas(replicas, options, batches, dtype), on_one_device(options, batches, dtype),
              dtype == torch::kDouble ? 1e-12 : 1e-6);
}

class SyncBatchNormNumbers : public testing::TestWithParam<std::tuple<int, Layout, at::ScalarType>> {};

TEST_P(SyncBatchNormNumbers, EqualTorchsBatchNormOnTheWholeBatch) {
  const auto& [replicas, layout, dtype] = GetParam();
  expect_one_devices_numbers(replicas, BatchNormOptions(kChannels), layout, dtype);
}

const Layout kImages{"Images", {3, 4}};
const Layout kChannelsLast{"ChannelsLast", {3, 4}, torch::MemoryFormat::ChannelsLast};

INSTANTIATE_TEST_SUITE_P(
    Layouts, SyncBatchNormNumbers,
    testing::Combine(testing::Values(1, 2, 3, 4),
                     testing::Values(Layout{"Vectors", {}}, Layout{"Sequences", {6}}, kImages, kChannelsLast,
                                     Layout{"Volumes", {2, 3, 2}, torch::MemoryFormat::ChannelsLast3d}),
                     testing::Values(torch::kDouble, torch::kFloat)),
    [](const auto& info) {
      return std::get<1>(info.param).name + "_" + std::to_string(std::get<0>(info.param)) +
             (std::get<2>(info.param) == torch::kDouble ? "_float64" : "_float32");
    });

TEST(SyncBatchNorm, TakesTheOptionsOfTorchsBatchNorm) {
  for (const auto& options :
       {BatchNormOptions(kChannels).affine(false), BatchNormOptions(kChannels).track_running_stats(false),
        BatchNormOptions(kChannels).eps(0.3).momentum(0.7),
        BatchNormOptions(kChannels).momentum(std::nullopt)}) {
    for (const auto& layout : {kImages, kChannelsLast})
      expect_one_devices_numbers(3, options, layout, torch::kDouble);
  }
}

TEST(SyncBatchNorm, TakesInputsThatLieInNoFormat) {
  auto batches = three_batches(2, kImages, torch::kDouble);
  const auto expected = on_one_device(BatchNormOptions(kChannels), batches, torch::kDouble);
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto modules = strategy.scope([&](ReplicaContext&) {
    SyncBatchNorm module(kChannels);
    set_parameters(module, torch::kDouble);
    return module;
  });
  const auto outputs = strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm& own) {
        const auto begin = replica.replica_id() * 3;
        const auto shard = batches[0].input.slice(0, begin, begin == 0 ? 3 : 7);
        return own->forward(shard.to(replica.device()).transpose(2, 3).contiguous().transpose(2, 3)).detach();
      },
      modules);
  EXPECT_LE(largest_difference({torch::cat(values_of(outputs.local_values()))}, {expected.outputs[0]}),
            1e-12);
}

TEST(SyncBatchNorm, StaysExactFarFromZero) {
  // A mean of 1e6 standard deviations: E[x^2] - E[x]^2 would keep only four digits of the variance.
  auto batches = three_batches(3, kImages, torch::kDouble);
  for (auto& batch : batches) batch.input = batch.input + 1e6;
  expect_near(on_replicas(3, BatchNormOptions(kChannels), batches, torch::kDouble),
              on_one_device(BatchNormOptions(kChannels), batches, torch::kDouble), 1e-8);
}

TEST(SyncBatchNorm, KeepsFloat32StatisticsOfNarrowInputs) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto batches = three_batches(3, kChannelsLast, dtype);
    const auto given = on_replicas(3, BatchNormOptions(kChannels), batches, torch::kFloat);
    const auto expected = on_one_device(BatchNormOptions(kChannels), batches, torch::kFloat);
    expect_near(given.buffers, expected.buffers, 1e-6, "running statistics");
    // One unit in the last place of 1, in bfloat16 or float16.
    const double unit = dtype == torch::kBFloat16 ? 1.0 / 128 : 1.0 / 1024;
    expect_near(given.outputs, expected.outputs, unit, "outputs");
    expect_near(given.input_gradients, expected.input_gradients, unit, "input gradients");
    expect_near(given.parameter_gradients, expected.parameter_gradients, unit, "parameter gradients");
  }
}

TEST(SyncBatchNorm, EvaluatesByItsRunningStatisticsAsTorchDoes) {
  const auto batches = three_batches(2, kImages, torch::kDouble);
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto modules = strategy.scope([](ReplicaContext&) { return SyncBatchNorm(kChannels); });
  torch::nn::BatchNorm2d alone(kChannels);
  for (auto& own : modules.local_values()) own->to(torch::kDouble);
  alone->to(torch::kDouble);
  alone->forward(batches[0].input);
  strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm& own) {
        const auto shard =
            batches[0].input.split_with_sizes({3, 4})[static_cast<size_t>(replica.replica_id())];
        own->forward(shard.to(replica.device()));
      },
      modules);
  modules.eval();
  alone->eval();
  const auto expected = alone->forward(batches[1].input);
  // On each replica by itself in a run, whatever the others do, and outside of runs.
  strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm& own) {
        if (replica.replica_id() == 1) {
          EXPECT_LE(largest_difference({own->forward(batches[1].input.to(replica.device()))}, {expected}),
                    1e-12);
        }
      },
      modules);
  const auto outside = modules.primary()->forward(batches[1].input.to(strategy.devices()[0].torch_device()));
  EXPECT_LE(largest_difference({outside}, {expected}), 1e-12);
}

}  // namespace
}  // namespace lockstep
