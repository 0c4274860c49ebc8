// The memory of gradients that a pass of a pipeline hands to the parameters.
#include "lockstep/strategies/parallel/internal/stage_gradients.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <vector>

#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"

namespace lockstep {
namespace {

/// Adds two parameters to each row, of which the second has another shape: backward gives both the same
/// memory.
struct TwiceShiftedImpl : torch::nn::Module {
  TwiceShiftedImpl() {
    first = register_parameter("first", torch::zeros({7}, torch::kDouble));
    second = register_parameter("second", torch::zeros({1, 7}, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + (first + second.view({7})); }

  torch::Tensor first, second;
};
TORCH_MODULE(TwiceShifted);

/// Counts copies of tensors of one shape that the calling thread makes while it lives: in release builds, and
/// otherwise none.
class CopiesOfShape {
 public:
  explicit CopiesOfShape(std::vector<int64_t> sizes) {
    sizes_ = std::move(sizes);
    count_ = 0;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&CopiesOfShape::on_call).needsInputs(true));
  }
  ~CopiesOfShape() { at::removeCallback(handle_); }
  CopiesOfShape(const CopiesOfShape&) = delete;
  CopiesOfShape& operator=(const CopiesOfShape&) = delete;

  static int count() { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
#ifdef NDEBUG  // or inputs() checks a member that LibTorch's release libraries do not set
    const std::string name = function.name();
    const auto inputs = function.inputs();
    const bool is_copy = name == "aten::clone" || name == "aten::copy_";
    if (is_copy && inputs[0].isTensor() && inputs[0].toTensor().sizes() == sizes_) ++count_;
#else
    static_cast<void>(function);
#endif
    return nullptr;
  }

  static thread_local std::vector<int64_t> sizes_;
  static thread_local int count_;
  at::CallbackHandle handle_ = 0;
};
thread_local std::vector<int64_t> CopiesOfShape::sizes_;
thread_local int CopiesOfShape::count_ = 0;

struct HandedGradients {
  torch::Tensor first, second;
  int copies = 0;
};

/// Trains one step of a pipeline with one rank.
HandedGradients handed_gradients(int micro_batches, const std::string& schedule) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1, .mesh = {{"pipeline", 1}}});
  auto model = strategy.scope([&](ReplicaContext& replica) {
    torch::nn::Sequential layers(TwiceShifted{});
    return Pipeline(replica.axis("pipeline"), layers,
                    PipelineOptions{.schedule = schedule, .micro_batches = micro_batches});
  });
  const auto results = strategy.run(
      [](ReplicaContext& replica, Pipeline& own) {
        const CopiesOfShape copies({7});
        own->forward_backward(
            replica, wave_values({8, 7}, 1), wave_values({8, 7}, 2),
            {.losses = [](const auto& x, const auto& y) { return (x - y).square().sum(1); }});
        const auto parameters = own->named_parameters();
        return HandedGradients{parameters["0.first"].grad(), parameters["0.second"].grad(), copies.count()};
      },
      model);
  return results[0];
}

TEST(StageGradientsTest, ParametersGetTheSumsWithoutACopy) {
  const torch::Tensor expected = 2 * (wave_values({8, 7}, 1) - wave_values({8, 7}, 2)).mean(0);
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const auto handed = handed_gradients(4, schedule);
    EXPECT_TRUE(torch::allclose(handed.first, expected, 0, 1e-12));
    EXPECT_TRUE(torch::allclose(handed.second, expected.view({1, 7}), 0, 1e-12));
    EXPECT_EQ(handed.copies, 0) << schedule;
  }
}

TEST(StageGradientsTest, GradientsOfOneMicroBatchThatShareMemoryAreKeptApart) {
  const torch::Tensor expected = 2 * (wave_values({8, 7}, 1) - wave_values({8, 7}, 2)).mean(0);
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const int micro_batches : {1, 2, 4}) {
      const auto handed = handed_gradients(micro_batches, schedule);
      handed.first.mul_(3);  // as clipping would
      EXPECT_TRUE(torch::allclose(handed.first, 3 * expected, 0, 1e-12)) << schedule << " " << micro_batches;
      EXPECT_TRUE(torch::allclose(handed.second, expected.view({1, 7}), 0, 1e-12))
          << schedule << " " << micro_batches;
    }
  }
}

}  // namespace
}  // namespace lockstep
