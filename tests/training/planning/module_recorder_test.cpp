// Records of steps whose operators and memory are known.
#include "lockstep/training/planning/module_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kInputs = 8, kHidden = 64;
using Tensors = std::vector<torch::Tensor>;

torch::nn::Sequential make_mlp_to_record() {
  return torch::nn::Sequential(torch::nn::Linear(kInputs, kHidden), torch::nn::Tanh(),
                               torch::nn::Linear(kHidden, 1));
}

Tensors rows_of_inputs(int64_t examples) {
  return {torch::rand({examples, kInputs})};
}

/// With each module as a block.
RecordedStep record_mlp(torch::nn::Sequential& model) {
  ModuleRecorder recorder;
  return recorder.record(*model, rows_of_inputs, [&](const Tensors& batch) {
    torch::Tensor x = batch[0];
    int number = 0;
    for (auto& layer : *model) {
      x = recorder.call(
          std::to_string(number++), [&](const torch::Tensor& in) { return layer.forward<torch::Tensor>(in); },
          x);
    }
    return x.square().mean();
  });
}

TEST(ModuleRecorderTest, CountsTheFlopsOfMatrixProducts) {
  auto model = make_mlp_to_record();
  const auto record = record_mlp(model);
  // The gradient of the inputs is not needed.
  const double forward = 2 * (kInputs * kHidden + kHidden);
  const double backward = 2 * (kInputs * kHidden + 2 * kHidden);
  for (const int64_t examples : {1, 4, 100})
    EXPECT_DOUBLE_EQ(record.flops(examples), static_cast<double>(examples) * (forward + backward));
  const auto is_product = [](const auto& one) { return one.name == "aten::addmm"; };
  const auto first = std::find_if(record.operators.begin(), record.operators.end(), is_product);
  ASSERT_NE(first, record.operators.end());
  EXPECT_EQ(first->block, 0);
  EXPECT_FALSE(first->is_backward);
  EXPECT_THAT(first->shapes,
              ElementsAre(ElementsAre(kHidden), ElementsAre(8, kInputs), ElementsAre(kInputs, kHidden)));
  EXPECT_THAT(first->dtypes, ElementsAre("Float", "Float", "Float"));
  EXPECT_DOUBLE_EQ(first->bytes_read.at(10), 4.0 * (kHidden + 10 * kInputs + kInputs * kHidden));
  EXPECT_DOUBLE_EQ(first->bytes_written.at(10), 4.0 * 10 * kHidden);
}

TEST(ModuleRecorderTest, CountsTheFlopsOfConvolutions) {
  ModuleRecorder recorder;
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(6, 4, 3).groups(2));
  const auto record = recorder.record(
      *layer,
      [](int64_t examples) {
        return Tensors{torch::rand({examples, 6, 12, 10})};
      },
      [&](const Tensors& batch) { return layer->forward(batch[0]).sum(); });
  // Each of 4 x 10 x 8 outputs meets 3 channels of 3 x 3 weights, and does so again for the weights'
  // gradient.
  EXPECT_DOUBLE_EQ(record.flops(5), 2 * 2.0 * 5 * (4 * 10 * 8) * (3 * 9));
}

TEST(ModuleRecorderTest, CountsTheFlopsOfAGpt) {
  const GptOptions options{
      .vocabulary_size = 50, .max_length = 32, .num_layers = 2, .num_heads = 2, .width = 32};
  constexpr int64_t kTokens = 32, kExamples = 6;
  ModuleRecorder recorder;
  Gpt model(options);
  const auto record = recorder.record(
      *model,
      [](int64_t examples) {
        return Tensors{torch::randint(50, {examples, kTokens}), torch::randint(50, {examples, kTokens})};
      },
      [&](const Tensors& batch) { return model->losses(batch[0], batch[1]).mean(); });
  double weights = 0;  // of matrices that each token is multiplied with
  for (const auto& item : model->named_parameters()) {
    const bool is_table = item.key() == "tokens.weight" || item.key() == "positions.weight";
    if (item.value().dim() == 2 && !is_table) weights += static_cast<double>(item.value().numel());
  }
  // Attention has two products between all tokens, and backward computes five.
  const double scores = 2.0 * 7 * static_cast<double>(options.num_layers * options.width * kTokens);
  EXPECT_DOUBLE_EQ(record.flops(kExamples), kExamples * kTokens * (6 * weights + scores));
  // The usual estimate counts biases as well, and four products of backward.
  EXPECT_NEAR(record.flops(kExamples) / (kExamples * kTokens * gpt_training_flops(options, kTokens)), 1,
              0.05);
}

/// Returns the sum over the operators of a name in backward.
RecordedOperator sum_of_operators(const RecordedStep& record, const std::string& name) {
  RecordedOperator sum{.name = name};
  for (const auto& one : record.operators) {
    if (one.name != name || !one.is_backward) continue;
    sum.bytes_read.per_example += one.bytes_read.per_example;
    sum.bytes_read.fixed += one.bytes_read.fixed;
    sum.bytes_written.per_example += one.bytes_written.per_example;
    sum.bytes_written.fixed += one.bytes_written.fixed;
  }
  return sum;
}

// Backward of a norm reads the gradient, the input, a mean and a deviation of each row, and the weights, and
// writes the input's gradient and those of weights and biases. Its kernel zeroes memory first, which does not
// make it a caller of other operators.
TEST(ModuleRecorderTest, CountsTheBytesOfTheBackwardOfANorm) {
  torch::nn::Sequential model(torch::nn::Linear(kInputs, kHidden),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})));
  ModuleRecorder recorder;
  const auto record = recorder.record(
      *model, rows_of_inputs, [&](const Tensors& batch) { return model->forward(batch[0]).square().mean(); });
  const auto norm = sum_of_operators(record, "aten::native_layer_norm_backward");
  constexpr double kBytes = 4;
  EXPECT_EQ(norm.bytes_read.per_example, kBytes * (2 * kHidden + 2));
  EXPECT_EQ(norm.bytes_read.fixed, kBytes * 2 * kHidden);
  EXPECT_EQ(norm.bytes_written.per_example, kBytes * kHidden);
  EXPECT_EQ(norm.bytes_written.fixed, kBytes * 2 * kHidden);
}

// The gradient of a bias is the sum of the rows.
TEST(ModuleRecorderTest, CountsTheBytesOfSumsOfBiases) {
  auto model = make_mlp_to_record();
  const auto record = record_mlp(model);
  const auto sums = sum_of_operators(record, "aten::sum");
  constexpr double kBytes = 4;
  EXPECT_EQ(sums.bytes_read.per_example, kBytes * (kHidden + 1));
  EXPECT_EQ(sums.bytes_written.fixed, kBytes * (kHidden + 1));
}

TEST(ModuleRecorderTest, KeepsWhatBackwardNeedsOnce) {
  auto model = make_mlp_to_record();
  const auto record = record_mlp(model);
  // The result of tanh, which the second layer needs as well, and that of the model, which is squared.
  EXPECT_EQ(record.saved_bytes(100), 4 * 100 * (kHidden + 1));
  EXPECT_THAT(record.saved_bytes_of_blocks(100), ElementsAre(0, 4 * 100 * kHidden, 4 * 100));
  EXPECT_DOUBLE_EQ(record.input_bytes.at(100), 4.0 * 100 * kInputs);
}

TEST(ModuleRecorderTest, ListsBlocksWithTheirParameters) {
  auto model = make_mlp_to_record();
  const auto record = record_mlp(model);
  EXPECT_THAT(record.blocks, ElementsAre("0", "1", "2"));
  std::vector<std::string> names;
  std::vector<int> blocks;
  int64_t elements = 0;
  for (const auto& parameter : record.parameters) {
    names.push_back(parameter.name);
    blocks.push_back(parameter.block);
    elements += parameter.elements;
    ASSERT_GE(parameter.gradient, 0);
    EXPECT_EQ(record.allocations[static_cast<size_t>(parameter.gradient)].bytes.at(7),
              static_cast<double>(4 * parameter.elements));
  }
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  EXPECT_THAT(blocks, ElementsAre(0, 0, 2, 2));
  EXPECT_EQ(elements, kInputs * kHidden + 2 * kHidden + 1);
  ASSERT_EQ(record.calls.size(), 3U);
  // Backward goes through the blocks in the other order.
  for (size_t i = 0; i + 1 < record.calls.size(); ++i) {
    EXPECT_LT(record.calls[i].ends_at, record.calls[i + 1].begins_at);
    EXPECT_GT(record.calls[i].backward_begins_at, record.calls[i + 1].backward_begins_at);
    EXPECT_EQ(record.calls[i].backward_begins_at, record.calls[i + 1].backward_ends_at + 1);
  }
}

TEST(ModuleRecorderTest, TellsThePeakOfABatchThatItDidNotRecord) {
  auto model = make_mlp_to_record();
  const auto record = record_mlp(model);
  for (const int64_t examples : {3, 8, 200}) {
    const auto batch = rows_of_inputs(examples);
    model->zero_grad();
    const CountedMemory memory;
    const auto loss_of = [&] { return model->forward(batch[0]).square().mean(); };
    loss_of().backward();
    const auto live = record.live_bytes(examples);
    EXPECT_EQ(*std::max_element(live.begin(), live.end()), memory.peak()) << examples;
  }
}

// Products of bfloat16 need memory of their own or not, as their sizes decide. They are the same operations.
TEST(ModuleRecorderTest, RecordsSmallGptsUnderAutocast) {
  for (const int64_t width : {8, 16, 32, 64}) {
    for (const int64_t length : {4, 16, 32}) {
      const GptOptions options{
          .vocabulary_size = 50, .max_length = length, .num_layers = 1, .num_heads = 2, .width = width};
      const auto record_as = [&](at::ScalarType dtype) {
        Gpt model(options);
        ModuleRecorder recorder;
        return recorder.record(
            *model,
            [&](int64_t examples) {
              return Tensors{torch::randint(50, {examples, length}), torch::randint(50, {examples, length})};
            },
            [&](const Tensors& batch) {
              const AutocastGuard cast(torch::kCPU, dtype);
              return model->losses(batch[0], batch[1]).mean();
            });
      };
      EXPECT_EQ(record_as(torch::kBFloat16).flops(3), record_as(torch::kFloat).flops(3))
          << width << " wide, " << length << " tokens";
    }
  }
}

TEST(ModuleRecorderTest, LeavesBuffersAsTheyWereAndDropsGradients) {
  torch::nn::Sequential model(torch::nn::Linear(kInputs, 4), torch::nn::BatchNorm1d(4));
  model->forward(rows_of_inputs(5)[0]).sum().backward();
  std::vector<torch::Tensor> before;
  for (const auto& buffer : model->buffers()) before.push_back(buffer.clone());
  ModuleRecorder recorder;
  const auto record = recorder.record(
      *model, rows_of_inputs, [&](const Tensors& batch) { return model->forward(batch[0]).square().sum(); });
  const auto buffers = model->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(buffers[i].equal(before[i])) << i;
  for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(record.buffer_bytes, 2 * 4 * 4 + 8);
}

TEST(ModuleRecorderTest, RefusesStepsThatChangeWithTheExamples) {
  auto model = make_mlp_to_record();
  ModuleRecorder recorder;
  const auto message = message_of<InvalidArgument>([&] {
    recorder.record(*model, rows_of_inputs, [&](const Tensors& batch) {
      const auto result = model->forward(batch[0]);
      return (batch[0].size(0) > 4 ? result.sigmoid() : result.tanh()).mean();
    });
  });
  EXPECT_THAT(message, HasSubstr("does the same for 4 and for 8 examples, but with more of them it calls "
                                 "aten::sigmoid in place of aten::tanh"));
}

TEST(ModuleRecorderTest, RefusesWhatItCannotRecord) {
  auto model = make_mlp_to_record();
  const auto loss = [&](const Tensors& batch) { return model->forward(batch[0]).sum(); };
  const auto error_of = [&](ModuleRecorder recorder, const auto& loss_of) {
    return message_of<InvalidArgument>([&] { recorder.record(*model, rows_of_inputs, loss_of); });
  };
  EXPECT_THAT(error_of(ModuleRecorder({.fewer_examples = 4, .more_examples = 4}), loss),
              HasSubstr("expected 1 or more examples, and then more of them, but got 4 and 4"));
  EXPECT_THAT(error_of(ModuleRecorder(), [&](const Tensors& batch) { return model->forward(batch[0]); }),
              HasSubstr("expected a loss of one element with a gradient, but got [4, 1]"));
  EXPECT_THAT(error_of(ModuleRecorder(), [](const Tensors& batch) { return batch[0].sum(); }),
              HasSubstr("but got [] without a gradient"));
  ModuleRecorder other;
  EXPECT_THAT(error_of(ModuleRecorder(),
                       [&](const Tensors& batch) {
                         other.record(*model, rows_of_inputs, loss);
                         return loss(batch);
                       }),
              HasSubstr("expected no other recording in this thread"));
  struct OnMeta : torch::nn::Module {
    OnMeta() { register_parameter("weight", torch::empty({2}, torch::kMeta)); }
  } elsewhere;
  EXPECT_THAT(message_of<InvalidArgument>([&] { other.record(elsewhere, rows_of_inputs, loss); }),
              HasSubstr("expected parameters on the CPU, but 'weight' is on meta"));
}

}  // namespace
}  // namespace lockstep
