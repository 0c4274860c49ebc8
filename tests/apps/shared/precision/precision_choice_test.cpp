#include "lockstep/apps/shared/precision/precision_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

constexpr LogicalDevice kCpu{c10::DeviceType::CPU, 1};
constexpr LogicalDevice kGpu{c10::DeviceType::CUDA, 0};

TEST(PrecisionChoice, CastsToTheShortTypesOnly) {
  EXPECT_EQ(autocast_dtype(PrecisionKind::kFloat32), c10::ScalarType::Float);
  EXPECT_EQ(autocast_dtype(PrecisionKind::kFloat64), c10::ScalarType::Float);
  EXPECT_EQ(autocast_dtype(PrecisionKind::kTf32), c10::ScalarType::Float);
  EXPECT_EQ(autocast_dtype(PrecisionKind::kBFloat16), c10::ScalarType::BFloat16);
  EXPECT_EQ(autocast_dtype(PrecisionKind::kFloat16), c10::ScalarType::Half);
}

TEST(PrecisionChoice, UsesTf32InConvolutionsAsPyTorchDoesUnlessToldOtherwise) {
  for (const auto other :
       {PrecisionKind::kFloat32, PrecisionKind::kFloat64, PrecisionKind::kBFloat16, PrecisionKind::kFloat16})
    EXPECT_EQ(tf32_use(other), Tf32Use::kConvolutions);
  EXPECT_EQ(tf32_use(PrecisionKind::kIeee), Tf32Use::kNone);
  EXPECT_EQ(tf32_use(PrecisionKind::kTf32), Tf32Use::kAll);
}

TEST(PrecisionChoice, LetsCudnnMeasureUnlessAProcessHasSeveralGpus) {
  constexpr LogicalDevice kOtherGpu{c10::DeviceType::CUDA, 1};
  EXPECT_TRUE(measures_convolutions(true, {kGpu}));
  EXPECT_TRUE(measures_convolutions(true, {kGpu, kGpu})) << "two replicas on one GPU";
  EXPECT_FALSE(measures_convolutions(true, {kGpu, kOtherGpu}));
  EXPECT_FALSE(measures_convolutions(false, {kGpu}));
}

TEST(PrecisionChoice, KeepsParametersInFloat64WhereItIsAskedForOnly) {
  EXPECT_EQ(parameter_dtype(PrecisionKind::kFloat64), c10::ScalarType::Double);
  for (const auto other : {PrecisionKind::kFloat32, PrecisionKind::kIeee, PrecisionKind::kTf32,
                           PrecisionKind::kBFloat16, PrecisionKind::kFloat16}) {
    EXPECT_EQ(parameter_dtype(other), c10::ScalarType::Float);
  }
}

TEST(PrecisionChoice, ScalesTheLossInFloat16Only) {
  EXPECT_FALSE(needs_loss_scaling(PrecisionKind::kFloat32));
  EXPECT_FALSE(needs_loss_scaling(PrecisionKind::kTf32));
  EXPECT_FALSE(needs_loss_scaling(PrecisionKind::kBFloat16));
  EXPECT_TRUE(needs_loss_scaling(PrecisionKind::kFloat16));
}

TEST(PrecisionChoice, TakesTf32OnGpusOnly) {
  EXPECT_NO_THROW(check_precision(PrecisionKind::kTf32, {kGpu}));
  for (const auto other : {PrecisionKind::kFloat32, PrecisionKind::kBFloat16, PrecisionKind::kFloat16})
    EXPECT_NO_THROW(check_precision(other, {kGpu, kCpu}));
  try {
    check_precision(PrecisionKind::kTf32, {kGpu, kCpu});
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "--precision tf32: expected GPUs only, which alone have TF32, but got cpu:1; bfloat16 is for "
              "CPUs, too");
  }
}

TEST(PrecisionChoice, TakesCudaGraphsOnGpusOnly) {
  EXPECT_NO_THROW(check_cuda_graph({kGpu}));
  try {
    check_cuda_graph({kGpu, kCpu});
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "--cuda-graph: expected GPUs only, which alone have graphs, but got cpu:1; --devices names them");
  }
}

}  // namespace
}  // namespace lockstep::apps
